"""People rate answers: store, assignment, quality, web app, exports (GopherCite, 2.6 and C).

A *study* is a folder with a data base, or the URL of one elsewhere. It holds *experiments*, each
with one form (`forms.py`) and items to rate; raters, who belong to one pool each; and their
ratings. A rating is never changed, only superseded, and what counts is decided when ratings are
exported, by rules that are written beside them.
"""

"""People rate answers: storage, assignment, quality, web app, exports (GopherCite, 2.6 and C).

A *study* is a folder with a database, or with the URL of a database elsewhere. It holds
*experiments*, each with one form (`forms.py`) and items to rate; raters, who each belong to one
pool; and their ratings. A rating is never changed, only superseded. What counts is decided when
ratings are exported, by rules that are written next to the export.
"""

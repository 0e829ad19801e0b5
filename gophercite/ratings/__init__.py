"""Human ratings of answers: storage, assignment, quality control, exports (GopherCite, 2.6 and C).

A *study* is a folder with a database, or with the URL of a database elsewhere. It holds
*experiments*, each with one form (`forms.py`) and items to rate; raters, each of whom belongs to
one pool; and their ratings. A rating is never changed, only superseded. Which ratings count is
decided at export, by rules that are written next to the exported file.
"""

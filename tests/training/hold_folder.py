"""A process that holds a run's folder in a bucket: `hold_folder.py gs://BUCKET/NAME EXPIRY`.

It says "held", then makes sure again and again that the folder is its own; when that is over it
prints why and ends with status 3.
"""

import sys
import time

from etils import epath

from gophercite.training.owner_mark import OwnerMark
from gophercite.training.run_lock import Owner, RunInUseError

if __name__ == "__main__":
    expiry = float(sys.argv[2])
    mark = OwnerMark(epath.Path(sys.argv[1]), Owner.me(), print, renewal=expiry / 10, expiry=expiry)
    print("held", flush=True)
    try:
        while True:
            mark.confirm()
            time.sleep(0.02)
    except RunInUseError as error:
        print(error, flush=True)
        sys.exit(3)

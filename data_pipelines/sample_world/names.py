"""Invented names, numbered so that train, validation and test never share one.

Every name is a start and an ending ("Kesh" + "olan"), so a small vocabulary spells each name in two
or three pieces. The sum of the indices of the two parts, modulo ten, decides which split owns the
name, whatever the world's seed. Each start and each ending occurs in every split, so a model that
is tested on the test split meets names that it has never seen, made of parts that it has seen.
"""

import math
import random
from typing import Literal, get_args

from data_pipelines.sample_world.values import words

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)

_STARTS = words(
    "Ald Alv Am Arb Arn Ask Bal Bar Bel Ber Bir Blan Bor Bran Bren Brim Cad Cal Car Cast Cor "
    "Cran Dal Dar Del Der Dor Dral Dren Dun Ebb Eld Elm Emm Erl Esk Fal Far Fen Fin Fjel Fol "
    "Fren Gal Gar Gel Glen Gor Gram Grev Hal Har Hav Hel Hol Hul Il Imm Ing Ist Jal Jarn Jel "
    "Jor Kal Kar Kel Kesh Kin Kol Kran Lam Lar Len Lind Lor Lun Mal Mar Mel Mer Mist Mor Mul "
    "Nal Nar Nel Nor Nun Ob Old Olm Ork Osk Pal Par Pel Pin Pol Pren Quel Quin Ral Ran Rel Rim "
    "Rol Run Sal Sar Sel Ser Shal Sil Skal Sol Stav Sul Tal Tar Tel Tham Tib Tor Trel Tul Ulm "
    "Und Urs Val Var Vel Ver Vin Vol Wal War Wel Wend Wil Wor Yal Yar Yel Yor Zal Zel Zin Zor"
)
_ENDINGS = words(
    "a ade ain aka alen ama amor ana anda anor ara arin asa aska aster ath ava avel ea ebra edra "
    "ega eka elan ella elo ema emir ena enda enor era erin esa esk esta ethe eva evin ia iba idan "
    "ika ila ilen ima imor ina inda inor ira iren isa isk ista ith iva ivel oa obar oda ogan oka "
    "ola olan oma omir ona onda onor ora orin osa osk osta oth ova ovel uba uda ugan uka ula ulen "
    "uma umor una unda unor ura uren usa usk usta uth uva uvel yla ymer yra"
)

_RESIDUES: dict[Split, tuple[int, ...]] = {
    "train": (0, 1, 2, 3, 4, 5, 6, 7),
    "validation": (8,),
    "test": (9,),
}


def count(split: Split) -> int:
    """Returns the number of different names in `split`."""
    return len(_STARTS) * len(_ENDINGS) // 10 * len(_RESIDUES[split])


def name(split: Split, index: int, offset: int = 0) -> str:
    """Returns name `index` of `split`; two indices below `count(split)` give two different names.

    Args:
      split: the split that owns the name.
      index: any non-negative number; it wraps around at `count(split)`.
      offset: where the sequence of names begins, so that worlds differ.
    """
    size = count(split)
    # A stride that shares no factor with the size visits every name once, in an order that looks
    # arbitrary. With a stride near the golden ratio, neighbours share neither start nor ending.
    stride = round(size * 0.6180339887)
    while math.gcd(stride, size) > 1:
        stride += 1
    residues = _RESIDUES[split]
    start, rest = divmod((index + offset) * stride % size, 10 * len(residues))
    tens, place = divmod(rest, len(residues))
    ending = 10 * tens + (residues[place] - start) % 10
    return _STARTS[start] + _ENDINGS[ending]


def split_of(text: str) -> Split | None:
    """Returns the split that owns a name, or None if it isn't one of ours."""
    parts = _parts(text)
    if parts is None:
        return None
    residue = sum(parts) % 10
    return next(split for split in SPLITS if residue in _RESIDUES[split])


def resembling(text: str, draw: random.Random) -> str | None:
    """Returns another name of the split with the same start or ending; None if it isn't ours."""
    parts = _parts(text)
    if parts is None:
        return None
    start, ending = parts
    while True:
        if draw.random() < 0.7:
            candidate = draw.choice(_STARTS) + _ENDINGS[ending]
        else:
            candidate = _STARTS[start] + draw.choice(_ENDINGS)
        if candidate != text and split_of(candidate) == split_of(text):
            return candidate


def _parts(text: str) -> tuple[int, int] | None:
    """The indices of a name's start and ending; None if it isn't one of ours."""
    for start, first in enumerate(_STARTS):
        if text.startswith(first) and text[len(first) :] in _ENDINGS:
            return start, _ENDINGS.index(text[len(first) :])
    return None

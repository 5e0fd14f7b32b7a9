"""How the signatures are checked in tests: by beartype, with a whole number allowed where a float is."""

from __future__ import annotations

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))

#!/bin/sh
# The row `paper-corrected` of SVHN in RESULTS.md: recipes/svhn/paper-corrected.sh SVHN28.npz SWEEP (rows with the same SWEEP share phase 1)
[ $# -eq 2 ] || { echo "usage: $0 SVHN28.npz SWEEP" >&2; exit 2; }
exec infogaze sweep svhn --data arrays --root "$1" --read.size 32 32 --length 0.4 --methods paper-corrected --seeds 3 --measure records --out "$2"

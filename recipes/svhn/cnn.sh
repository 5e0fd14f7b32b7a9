#!/bin/sh
# The row `cnn` of SVHN in RESULTS.md: recipes/svhn/cnn.sh SVHN28.npz SWEEP
[ $# -eq 2 ] || { echo "usage: $0 SVHN28.npz SWEEP" >&2; exit 2; }
exec infogaze sweep svhn --data arrays --root "$1" --read.size 32 32 --length 0.4 --methods cnn --seeds 3 --measure records --out "$2"

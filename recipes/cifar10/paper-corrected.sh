#!/bin/sh
# The row `paper-corrected` of CIFAR-10 in RESULTS.md: recipes/cifar10/paper-corrected.sh CIFAR10.npz SWEEP (rows with the same SWEEP share phase 1)
[ $# -eq 2 ] || { echo "usage: $0 CIFAR10.npz SWEEP" >&2; exit 2; }
exec infogaze sweep cifar10 --data arrays --root "$1" --methods paper-corrected --seeds 3 --measure records --out "$2"

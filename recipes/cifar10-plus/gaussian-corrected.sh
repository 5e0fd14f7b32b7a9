#!/bin/sh
# The row `gaussian-corrected` of CIFAR-10, preset cifar10-plus, in RESULTS.md: recipes/cifar10-plus/gaussian-corrected.sh CIFAR10.npz SWEEP (rows with the same SWEEP share phase 1)
[ $# -eq 2 ] || { echo "usage: $0 CIFAR10.npz SWEEP" >&2; exit 2; }
exec infogaze sweep cifar10-plus --data arrays --root "$1" --length 0.5 --methods gaussian-corrected --seeds 3 --measure records --out "$2"

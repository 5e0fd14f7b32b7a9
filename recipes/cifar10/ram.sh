#!/bin/sh
# The row `ram` of CIFAR-10 in RESULTS.md: recipes/cifar10/ram.sh CIFAR10.npz SWEEP (rows with the same SWEEP share phase 1)
exec infogaze sweep cifar10 --data arrays --root "$1" --methods ram --seeds 3 --measure records --out "$2"

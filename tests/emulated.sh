#!/bin/sh
# Runs a program of the build on the GPU emulator (tests/emulation/runtime.h):
#
#   sh tests/emulated.sh build/tests/unit -tc='gpu:*'
#   MPIGRAD_EMULATION=late sh tests/emulated.sh build/tests/unit -tc='gpu:*'
#   MPIGRAD_EMULATION=concurrent,devices=2 sh tests/emulated.sh build/examples/cosmoflow train --device cuda ...
#
# POSIX sh.
set -u
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
emulation=${MPIGRAD_BUILD:-$root/build}/tests/emulation
LD_LIBRARY_PATH=$emulation:$emulation/vendor${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
MPIGRAD_EMULATION=${MPIGRAD_EMULATION:-} MPIGRAD_GPU_POISON=${MPIGRAD_GPU_POISON:-1}
export LD_LIBRARY_PATH MPIGRAD_EMULATION MPIGRAD_GPU_POISON
exec "$@"

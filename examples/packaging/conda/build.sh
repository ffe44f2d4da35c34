#!/bin/bash
set -ex
# MPI's wrapper takes the compiler of the environment.
export MPICH_CXX=$CXX OMPI_CXX=$CXX CXX=mpicxx
# The kernels want -O3; conda's flags have -O2.
export CXXFLAGS="${CXXFLAGS:-} -O3"
meson setup build ${MESON_ARGS:-} --prefix="$PREFIX" --libdir=lib --buildtype=release --wrap-mode=nodownload \
  -Dmpi=enabled -Dhdf5=enabled -Donednn=enabled -Dopenblas=enabled -Dfftw=enabled -Dformats=enabled -Dtoml=enabled -Dtrainer=enabled \
  -Dexamples=enabled -Dcuda=disabled -Dprotobuf=disabled
ninja -C build -j "${CPU_COUNT:-2}"
meson install -C build --no-rebuild

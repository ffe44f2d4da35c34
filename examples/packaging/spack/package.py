# Copyright: see LICENSE. A recipe for Spack. In your own repository, here `mine`:
#
#   spack repo create my-packages mine
#   mkdir my-packages/spack_repo/mine/packages/mpigrad   # before 1.0: my-packages/packages/mpigrad
#   cp package.py my-packages/spack_repo/mine/packages/mpigrad/
#   spack repo add my-packages/spack_repo/mine           # before 1.0: my-packages
#
# Spack 0.23 has no package tomlplusplus: put one into your repository, too.
#
# The sources are the tree in the current folder, or the archive of a release there:
#
#   spack dev-build mpigrad@VERSION ^mpich               # in the source tree
#   spack install --no-checksum mpigrad ^mpich           # with mpigrad-VERSION.tar.xz
#
# `spack test run mpigrad` checks the installation on two ranks.

import os

try:  # Spack 1.0 and newer
    from spack_repo.builtin.build_systems.cuda import CudaPackage
    from spack_repo.builtin.build_systems.meson import MesonPackage
except ImportError:  # in older ones spack.package has both
    pass

from spack.package import *


class Mpigrad(MesonPackage, CudaPackage):
    """Tensors and reverse-mode automatic differentiation in C++ in which MPI operations are
    differentiable, for neural networks on volumes that are split over ranks."""

    # There is no address to fetch it from. Spack replaces the version in the file's name.
    manual_download = True
    url = "file://" + os.path.join(os.getcwd(), "mpigrad-0.2.0.tar.xz")

    license("Apache-2.0")

    version("0.2.0")

    variant("mpi", default=True, description="Ranks by MPI, not only threads")
    variant("hdf5", default=True, description="HDF5 files: data and checkpoints")
    variant("onednn", default=True, description="oneDNN for fast convolutions on CPUs")
    variant("trainer", default=True, description="The library of mpigrad/trainer.h")
    variant(
        "examples",
        default=True,
        description="Trainers and tools, which are installed to bin, with recipes",
    )
    variant("formats", default=True, description="Data in .gz, .npz, PNG and JPEG")
    variant("tests", default=False, description="Build the tests")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("meson@1.0:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("python@3:", type="build")

    depends_on("fmt@9:")
    depends_on("openblas threads=openmp")
    depends_on("fftw@3: precision=float,double")
    depends_on("fftw~mpi", when="~mpi")
    depends_on("mpi", when="+mpi")
    depends_on("hdf5@1.10:", when="+hdf5")
    depends_on("hdf5+mpi", when="+hdf5+mpi")
    depends_on("hdf5~mpi", when="+hdf5~mpi")
    depends_on("onednn@2.6:", when="+onednn")
    depends_on("zlib-api", when="+formats")
    depends_on("libzip", when="+formats")
    depends_on("libpng", when="+formats")
    depends_on("libjpeg-turbo", when="+formats")
    depends_on("cli11@2.1:", when="+trainer")
    depends_on("nlohmann-json@3.11:", when="+trainer")
    depends_on("tomlplusplus@3.3:", when="+trainer")
    depends_on("cairo+fc+ft+png", when="+trainer")
    depends_on("doctest", when="+tests")
    depends_on("cuda@12:", when="+cuda")
    depends_on("cudnn@9:", when="+cuda")
    depends_on("nccl@2.13:", when="+cuda+mpi")
    for arch in CudaPackage.cuda_arch_values:
        depends_on("nccl cuda_arch=" + arch, when="+cuda+mpi cuda_arch=" + arch)

    conflicts("+trainer", when="~hdf5", msg="trainers write HDF5 files")
    conflicts("+examples", when="~trainer", msg="the trainers need the library of trainers")
    conflicts(
        "cuda_arch=none", when="+cuda", msg="choose the GPUs to compile for: cuda_arch=80,90"
    )
    conflicts("%gcc@:11", msg="needs the C++20 of g++ 12")
    conflicts("%clang@:13", msg="needs the C++20 of clang 14")

    def setup_build_environment(self, env):
        if self.spec.satisfies("+mpi"):
            env.set("CC", self.spec["mpi"].mpicc)
            env.set("CXX", self.spec["mpi"].mpicxx)

    def meson_args(self):
        def feature(variant, option=None):
            value = "enabled" if self.spec.satisfies("+" + variant) else "disabled"
            return "-D{0}={1}".format(option or variant, value)

        args = [
            feature("mpi"),
            feature("hdf5"),
            feature("onednn"),
            feature("trainer"),
            feature("examples"),
            feature("trainer", "toml"),
            feature("formats"),
            feature("cuda"),
            feature("cuda", "cudnn"),
            "-Dopenblas=enabled",
            "-Dfftw=enabled",
            "-Dprotobuf=disabled",
            "-Ddlpack=disabled",
            "-Dfortran=disabled",
            "-Dtests={0}".format("true" if self.spec.satisfies("+tests") else "false"),
        ]
        if self.spec.satisfies("+cuda"):
            args.append("-Dgpu_archs=" + ",".join(self.spec.variants["cuda_arch"].value))
            args.append(feature("mpi", "nccl"))
        return args

    # ---- spack test run mpigrad

    test_source = os.path.join("examples", "first", "two_ranks.cpp")

    @run_after("install")
    def keep_test_source(self):
        cache_extra_test_sources(self, [self.test_source])

    def on_two_ranks(self, program, *options):
        """Output of a program on two ranks; without MPI ranks are threads."""
        if self.spec.satisfies("~mpi"):
            launch = [program, "--transport", "threads", "--ranks", "2"]
        else:
            launch = [os.path.join(self.spec["mpi"].prefix.bin, "mpiexec"), "-n", "2", program]
        if not os.path.exists(launch[0]):
            raise SkipTest("there is no {0}".format(launch[0]))
        command = Executable(launch[0])
        return command(*launch[1:], *options, output=str.split, error=str.split)

    def test_selftest(self):
        """check the installation on two ranks"""
        if self.spec.satisfies("~trainer"):
            raise SkipTest("mpigrad-selftest is built with +trainer")
        self.on_two_ranks(self.prefix.bin.join("mpigrad-selftest"), "--folder", os.getcwd())

    def test_compile(self):
        """compile a program with pkg-config and run it on two ranks"""
        libraries = list(self.spec.traverse(deptype="link"))
        folders = [os.path.join(s.prefix, d) for s in libraries for d in ("lib", "lib64", "share")]
        pkg_config = Executable(os.path.join(self.spec["pkgconfig"].prefix.bin, "pkg-config"))
        pkg_config.add_default_env(
            "PKG_CONFIG_PATH", ":".join(os.path.join(folder, "pkgconfig") for folder in folders)
        )
        flags = pkg_config("--cflags", "--libs", "mpigrad", output=str.split).split()
        source = self.test_suite.current_test_cache_dir.join(self.test_source)
        compiler = Executable(self.compiler.cxx)
        compiler("-std=c++20", source, "-o", "two_ranks", *flags, *self.rpath_args.split())
        lines = self.on_two_ranks(os.path.abspath("two_ranks"))
        assert lines.count("loss 15174.6440") == 2

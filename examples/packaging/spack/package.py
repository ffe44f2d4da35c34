# Copyright: see LICENSE. A recipe for Spack: copy it to packages/mpigrad/package.py of a repository of yours, or
#
#   spack repo create my-packages && mkdir -p my-packages/packages/mpigrad && cp package.py my-packages/packages/mpigrad/
#   spack repo add my-packages && spack install mpigrad ^mpich

try:  # Spack 1.0 and newer
    from spack_repo.builtin.build_systems.cuda import CudaPackage
    from spack_repo.builtin.build_systems.meson import MesonPackage
except ImportError:  # in older ones spack.package has both
    pass

from spack.package import *


class Mpigrad(MesonPackage, CudaPackage):
    """Tensors and reverse-mode automatic differentiation in C++ in which MPI operations are differentiable, for neural networks
    on volumes that are split over ranks."""

    # There is no place to fetch it from: use `spack dev-build mpigrad@0.2.0` in the source tree, or add git = the address of your
    # copy.
    license("Apache-2.0")

    version("0.2.0")

    variant("mpi", default=True, description="Ranks by MPI, not only threads")
    variant("hdf5", default=True, description="HDF5 files: data and checkpoints")
    variant("onednn", default=True, description="oneDNN for fast convolutions on CPUs")
    variant("trainer", default=True, description="The library of mpigrad/trainer.h")
    variant("examples", default=True, description="Trainers and tools, which are installed to bin, with recipes")
    variant("formats", default=True, description="Data in .gz, .npz, PNG and JPEG")
    variant("tests", default=False, description="Build the tests")

    depends_on("cxx", type="build")
    depends_on("meson@1.0:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("python@3:", type="build")

    depends_on("fmt@9:")
    depends_on("openblas threads=openmp")
    depends_on("fftw@3: precision=float,double")
    depends_on("mpi", when="+mpi")
    depends_on("hdf5@1.10:", when="+hdf5")
    depends_on("hdf5+mpi", when="+hdf5+mpi")
    depends_on("onednn@2.6:", when="+onednn")
    depends_on("zlib-api", when="+formats")
    depends_on("libzip", when="+formats")
    depends_on("libpng", when="+formats")
    depends_on("libjpeg-turbo", when="+formats")
    depends_on("cli11@2.2:", when="+trainer")
    depends_on("nlohmann-json@3.11:", when="+trainer")
    depends_on("tomlplusplus@3.3:", when="+examples")
    depends_on("cairo", when="+trainer")
    depends_on("doctest", when="+tests")
    depends_on("cuda@12:", when="+cuda")
    depends_on("cudnn@9:", when="+cuda")
    depends_on("nccl@2.13:", when="+cuda+mpi")

    conflicts("+trainer", when="~hdf5", msg="trainers write HDF5 files")
    conflicts("+examples", when="~trainer", msg="the trainers need the library of trainers")
    conflicts("cuda_arch=none", when="+cuda", msg="choose the GPUs to compile for: cuda_arch=80,90")
    conflicts("%gcc@:11", msg="needs the C++20 of g++ 12")
    conflicts("%clang@:13", msg="needs the C++20 of clang 14")

    def setup_build_environment(self, env):
        if self.spec.satisfies("+mpi"):
            env.set("CXX", self.spec["mpi"].mpicxx)

    def meson_args(self):
        def feature(variant, option=None):
            return "-D{0}={1}".format(option or variant, "enabled" if self.spec.satisfies("+" + variant) else "disabled")

        args = [
            feature("mpi"),
            feature("hdf5"),
            feature("onednn"),
            feature("trainer"),
            feature("examples"),
            feature("examples", "toml"),
            feature("formats"),
            feature("cuda"),
            feature("cuda", "cudnn"),
            "-Dopenblas=enabled",
            "-Dfftw=enabled",
            "-Dprotobuf=disabled",
            "-Dtests={0}".format("true" if self.spec.satisfies("+tests") else "false"),
        ]
        if self.spec.satisfies("+cuda"):
            args.append("-Dgpu_archs=" + ",".join(self.spec.variants["cuda_arch"].value))
            args.append(feature("mpi", "nccl"))
        return args

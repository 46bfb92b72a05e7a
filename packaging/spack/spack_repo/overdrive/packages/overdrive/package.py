"""Spack recipe; `spack repo add packaging/spack/spack_repo/overdrive` makes Spack find it."""

import os

from spack_repo.builtin.build_systems.cmake import CMakePackage, generator

from spack.package import depends_on, license, run_after, variant, version, which


class Overdrive(CMakePackage):
    """Makes unmodified MPI programs run faster over the MPI library that is installed.

    The library is preloaded when a job starts (`overdrive mpirun -n 4 ./app`); programs neither
    link it nor depend on it. Which MPI libraries it serves is decided by the headers it is built
    with.
    """

    homepage = "https://overdrive-mpi.invalid"
    # The sources are a checkout (`spack dev-build -d CHECKOUT overdrive`) or, in the current
    # folder, the archive of `make deb` (`spack install --no-checksum overdrive`).
    manual_download = True
    url = f"file://{os.getcwd()}/overdrive-mpi_0.0.0.orig.tar.xz"

    license("Apache-2.0")

    version("0.1.0")

    variant("lto", default=True, description="Optimise across files")
    variant("openmpi", default=True, description="Serve Open MPI 4.1 and 5")
    variant("mpich", default=True, description="Serve MPICH, Intel MPI and MVAPICH")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.21:", type="build")
    depends_on("ninja", type="build")
    depends_on("python@3.9:", type=("build", "run"))
    depends_on("highway@1.0.3:", type="build")
    depends_on("tomlplusplus@3.3:", type="build")
    depends_on("nlohmann-json@3.11:", type="build")
    # The software switch.
    depends_on("cli11@2.1:", type="build")
    # `overdrive info --pinning` of machines other than this one.
    depends_on("hwloc@2:")
    # Headers alone: the face is compiled with them, nothing is linked.
    depends_on("openmpi@4.1:", type="build", when="+openmpi")
    depends_on("mpich@4:", type="build", when="+mpich")

    generator("ninja")

    def cmake_args(self):
        """Return the project's own options."""
        args = [
            self.define("OVERDRIVE_TESTS", False),
            self.define_from_variant("OVERDRIVE_LTO", "lto"),
            # As the wheel and the Debian packages are compiled.
            self.define("OVERDRIVE_UNITY", True),
            self.define("OVERDRIVE_HIGHWAY_INCLUDE", self.spec["highway"].prefix.include),
            self.define("OVERDRIVE_JSON_INCLUDE", self.spec["nlohmann-json"].prefix.include),
        ]
        for abi in ("openmpi", "mpich"):
            if self.spec.satisfies(f"+{abi}"):
                include = self.spec[abi].prefix.include
                # A distribution's own packages keep theirs elsewhere; CMake knows where.
                if os.path.isfile(os.path.join(include, "mpi.h")):
                    args.append(self.define(f"OVERDRIVE_{abi.upper()}_INCLUDE", include))
        return args

    def setup_run_environment(self, env):
        """Show what the modulefile of the installation shows."""
        env.set("OVERDRIVE_ROOT", self.prefix)

    @run_after("install")
    def tell(self):
        """Start the command once: it finds its parts relative to itself."""
        which(self.prefix.bin.join("overdrive"))("info")

#pragma once
// Version and commit of this build.

namespace mpigrad::trainer {

const char* version();  // "0.1.0"
const char* commit();   // as `git describe` says it; the version, where the sources are no repository

}  // namespace mpigrad::trainer

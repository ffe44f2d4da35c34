#pragma once
// Version and commit of this build.

namespace mpigrad::trainer {

const char* version();  // "0.1.0"
const char* commit();   // from `git describe`; the version if the sources are not a repository

}  // namespace mpigrad::trainer

// The version of this program. Written by tools/write_version.cmake at every build.
#pragma once

namespace megatrain {

extern const char* const kVersion;  // "0.3.0"

// The commit it was built from, followed by "-changed" if the sources differed from it; "unknown" outside git.
extern const char* const kBuildCommit;

}  // namespace megatrain

// What this program is. Written by tools/write_version.cmake at every build.
#pragma once

namespace megatrain {

extern const char* const kVersion;  // "0.2.0"

// The commit it was built from, "-changed" behind it when the sources were not that commit's; "unknown" outside git.
extern const char* const kBuildCommit;

}  // namespace megatrain

#pragma once

namespace megatrain {

// The commit this program was built from, "-changed" behind it when the sources were not that commit's; "unknown"
// outside git. Written by tools/write_commit.cmake.
extern const char* const kBuildCommit;

}  // namespace megatrain

// Files in a chosen run directory that do not belong to a run and must not be overwritten.
#pragma once

#include <string>
#include <vector>

namespace megatrain {

// Whether a killed run left this file: NAME.PID-N.partial for a NAME that runs write, or an unfinished dump.
bool is_own_partial(const std::string& name);

// Throws Error(bad_config), naming the files, when a directory without a run holds something a run could overwrite:
// names that a run writes, folders, a model's files. These do not count:
//   - what a run leaves that died before its first file
//   - `lost+found` and hidden files
//   - other plain files: people keep a configuration or a log there
//   - what `inputs` name and the folders on the way there, unless the name is one that a run writes
void check_nothing_foreign(const std::string& directory, const std::vector<std::string>& inputs);

// Throws Error(io) when a file or folder that the run writes in place is a symbolic link: the run would write to its
// target, which may belong to something else.
void check_no_links(const std::string& directory);

}  // namespace megatrain

// What lies in a directory that a run is to take, and is not the run's to write over.
#pragma once

#include <string>
#include <vector>

namespace megatrain {

// NAME of a file of the run that was being written is NAME.PID-N.partial; a kill leaves it.
bool is_own_partial(const std::string& name);

// Throws Error(bad_config) when the directory, which holds no run, holds something else, by name: what has a name that
// a run writes, folders, a model's files. These do not count: what a run that died before its first file leaves,
// `lost+found` and hidden files, other plain files (people keep a configuration or a log there), and what `inputs` name
// or what lies on the way to them, as long as their names are not a run's.
void check_nothing_foreign(const std::string& directory, const std::vector<std::string>& inputs);

// Throws Error(io) when a file or folder of the run that is written in place is a symbolic link: what it leads to,
// which may be anyone's, would be written.
void check_no_links(const std::string& directory);

}  // namespace megatrain

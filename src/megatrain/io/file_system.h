// The kind of file system that holds a path, as the kernel's table of mounts names it.
#pragma once

#include <string>

namespace megatrain {

// "ext4", "xfs", "nfs4", "fuse.sshfs": of the mount that holds the path; empty when it cannot be told.
std::string file_system_of(const std::string& path);

// The same of an absolute path in a table in the form of /proc/self/mountinfo.
std::string file_system_in(const std::string& mountinfo, const std::string& path);

// Its blocks lie on another machine, or are served by a process that fetches them from one.
bool is_network_file_system(const std::string& type);

}  // namespace megatrain

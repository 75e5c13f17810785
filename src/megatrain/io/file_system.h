// The kind of file system that holds a path, as the kernel's table of mounts names it.
#pragma once

#include <string>

namespace megatrain {

// "ext4", "xfs", "nfs4", "fuse.sshfs": the type of the mount that holds the path; empty if unknown.
std::string file_system_of(const std::string& path);

// The same for an absolute path and a mount table in the format of /proc/self/mountinfo.
std::string file_system_in(const std::string& mountinfo, const std::string& path);

// Whether its blocks are on another machine, or come from a process that fetches them from one.
bool is_network_file_system(const std::string& type);

}  // namespace megatrain

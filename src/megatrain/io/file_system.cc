#include "megatrain/io/file_system.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <vector>

namespace megatrain {

namespace {

// The mount table writes a space, a tab, a line end and a backslash as a backslash and three octal digits.
std::string unescaped(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escape =
        text[i] == '\\' && i + 3 < text.size() &&
        std::all_of(text.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                    text.begin() + static_cast<std::ptrdiff_t>(i) + 4, [](char c) { return c >= '0' && c <= '7'; });
    if (!escape) {
      plain += text[i];
      continue;
    }
    plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
    i += 3;
  }
  return plain;
}

bool holds(const std::string& mount, const std::string& path) {
  if (mount == "/") return path.starts_with('/');
  return path.starts_with(mount) && (path.size() == mount.size() || path[mount.size()] == '/');
}

}  // namespace

std::string file_system_in(const std::string& mountinfo, const std::string& path) {
  std::string type, longest;
  std::istringstream lines(mountinfo);
  for (std::string line; std::getline(lines, line);) {
    // number, parent, device, root, mount point, options, optional fields, "-", type, source, options
    std::istringstream words(line);
    const std::vector<std::string> fields{std::istream_iterator<std::string>(words), {}};
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (dash - fields.begin() < 6 || fields.end() - dash < 2) continue;
    const std::string mount = unescaped(fields[4]);
    // If several mounts share a mount point, the last one covers the others.
    if (!holds(mount, path) || mount.size() < longest.size()) continue;
    longest = mount;
    type = *(dash + 1);
  }
  return type;
}

std::string file_system_of(const std::string& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::canonical(path, error);
  if (error) return "";
  std::ifstream table("/proc/self/mountinfo");
  return file_system_in({std::istreambuf_iterator<char>(table), {}}, whole.string());
}

bool is_network_file_system(const std::string& type) {
  constexpr std::array<std::string_view, 18> kNetwork = {"9p",   "afs",       "beegfs", "ceph",   "cifs",  "coda",
                                                         "gfs2", "glusterfs", "gpfs",   "lustre", "ncpfs", "nfs",
                                                         "nfs4", "ocfs2",     "pvfs2",  "smb3",   "smbfs", "wekafs"};
  if (std::find(kNetwork.begin(), kNetwork.end(), type) != kNetwork.end()) return true;
  constexpr std::array<std::string_view, 12> kServed = {"ceph",     "gcsfuse", "glusterfs", "goofys",
                                                        "juicefs",  "lustre",  "rclone",    "s3fs",
                                                        "mount-s3", "sshfs",   "alluxio",   "blobfuse2"};
  constexpr std::string_view kPrefix = "fuse.";
  return type.starts_with(kPrefix) &&
         std::find(kServed.begin(), kServed.end(), std::string_view(type).substr(kPrefix.size())) != kServed.end();
}

}  // namespace megatrain

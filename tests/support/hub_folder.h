// A Hugging Face cache for one test, at the place HF_HUB_CACHE names, until the test ends.
#pragma once

#include <cstdlib>
#include <map>
#include <optional>

#include "tests/support/fixtures.h"

namespace megatrain {

class Variables {
 public:
  ~Variables() {
    for (const auto& [name, value] : former_)
      value ? ::setenv(name.c_str(), value->c_str(), 1) : ::unsetenv(name.c_str());
  }
  void set(const std::string& name, const std::string& value) {
    remember(name);
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  void unset(const std::string& name) {
    remember(name);
    ::unsetenv(name.c_str());
  }

 private:
  void remember(const std::string& name) {
    const char* value = std::getenv(name.c_str());
    former_.emplace(name, value ? std::optional<std::string>(value) : std::nullopt);
  }
  std::map<std::string, std::optional<std::string>> former_;
};

class HubFolder {
 public:
  HubFolder() { variables_.set("HF_HUB_CACHE", cache_.path()); }

  const std::string& path() const { return cache_.path(); }
  std::string folder() const { return cache_ / "models--Org--Name"; }
  std::string snapshot(const std::string& commit = "c0ffee") const { return folder() + "/snapshots/" + commit; }

  void point_main_at(const std::string& commit) const {
    std::filesystem::create_directories(folder() + "/refs");
    write_bytes(folder() + "/refs/main", commit);
  }

  // As after a download: a blob, and a link to it in the snapshot.
  void add(const std::string& name, const std::string& bytes, const std::string& commit = "c0ffee") const {
    std::filesystem::create_directories(folder() + "/blobs");
    std::filesystem::create_directories(snapshot(commit));
    write_bytes(folder() + "/blobs/of-" + name, bytes);
    std::filesystem::create_symlink("../../blobs/of-" + name, snapshot(commit) + "/" + name);
  }

 private:
  TemporaryDirectory cache_;
  Variables variables_;
};

}  // namespace megatrain

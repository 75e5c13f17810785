// Who holds how many bytes: every allocation of a device is counted under a tag.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace megatrain {

class Ledger {
 public:
  void add(const std::string& tag, int64_t bytes);
  void remove(const std::string& tag, int64_t bytes);

  int64_t bytes() const;  // held now
  int64_t peak_bytes() const;
  int64_t allocations() const;  // so far; does not grow in steady state
  std::map<std::string, int64_t> by_tag() const;
  std::string table() const;  // one line per tag, largest first

 private:
  mutable std::mutex mutex_;
  std::map<std::string, int64_t> held_;
  int64_t bytes_ = 0;
  int64_t peak_ = 0;
  int64_t allocations_ = 0;
};

}  // namespace megatrain

// What is wrong with a configuration, told in one list.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "megatrain/base/error.h"

namespace megatrain {

class Problems {
 public:
  Problems() = default;
  explicit Problems(std::vector<std::string> found) : found_(std::move(found)) {}

  void add(const std::string& problem) { found_.push_back(problem); }
  // Runs a check that may throw Error(bad_config), and keeps its message.
  template <class Check>
  void of(const Check& check) {
    try {
      check();
    } catch (const Error& error) {
      if (error.code() != ExitCode::bad_config) throw;
      add(error.what());
    }
  }
  bool empty() const { return found_.empty(); }

  // Throws Error(bad_config) with all problems, if there are any.
  void refuse() const {
    if (found_.empty()) return;
    if (found_.size() == 1) fail_config(found_.front());
    std::string all = fmt::format("{} problems:", found_.size());
    for (size_t i = 0; i < found_.size(); ++i)
      all += fmt::format(" ({}) {}{}", i + 1, found_[i], i + 1 < found_.size() ? ";" : "");
    fail_config(all);
  }

 private:
  std::vector<std::string> found_;
};

}  // namespace megatrain

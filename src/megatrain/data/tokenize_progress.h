// Reports the progress of tokenizing: a line with speed and time left, the first within a second.
#pragma once

#include <cstdint>
#include <string>

namespace megatrain {

class TokenizeProgress {
 public:
  explicit TokenizeProgress(std::string name) : name_(std::move(name)) {}
  ~TokenizeProgress();
  TokenizeProgress(const TokenizeProgress&) = delete;
  TokenizeProgress& operator=(const TokenizeProgress&) = delete;

  // How much is done, including the work of an earlier process. The first call tells where this process begins.
  void at(double fraction, int64_t tokens);

  // The line to print `seconds` after the first call.
  std::string line(double seconds, double fraction, int64_t tokens) const;

 private:
  std::string name_;
  bool begun_ = false, told_ = false;
  double start_s_ = 0, told_s_ = 0, first_fraction_ = 0;
  int64_t first_tokens_ = 0;
};

}  // namespace megatrain

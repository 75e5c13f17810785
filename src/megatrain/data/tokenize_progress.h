// How far tokenising is: a line with speed and time left, the first within a second.
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

  // What is done, of what an earlier process did too. The first call says where this one begins.
  void at(double fraction, int64_t tokens);

  // The line so many seconds after the first call.
  std::string line(double seconds, double fraction, int64_t tokens) const;

 private:
  std::string name_;
  bool begun_ = false, told_ = false;
  double start_s_ = 0, told_s_ = 0, first_fraction_ = 0;
  int64_t first_tokens_ = 0;
};

}  // namespace megatrain

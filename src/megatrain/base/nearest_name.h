// Finds the known name that a mistyped one was meant to be, for "did you mean" in messages.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "megatrain/base/edit_distance.h"

namespace megatrain {

// Keeps the considered name closest to what was written; the first one wins a tie.
class NearestName {
 public:
  using Distance = std::function<int64_t(const std::string& written, const std::string& known)>;

  explicit NearestName(const std::string& written) : NearestName(written, most_typing_errors(written)) {}
  // Ignores names that are more than `most` away.
  NearestName(std::string written, int64_t most, Distance distance = edit_distance)
      : written_(std::move(written)), distance_(std::move(distance)), beyond_(most + 1) {}

  void consider(const std::string& known) { consider(known, known); }
  // `suggestion` is the text to suggest if `known` is the nearest. For an alternative spelling, it is the name proper.
  void consider(const std::string& known, const std::string& suggestion);

  const std::string& found() const { return found_; }  // empty if none is near

 private:
  std::string written_;
  Distance distance_;
  int64_t beyond_;  // the distance that the next candidate has to beat
  std::string found_;
};

}  // namespace megatrain

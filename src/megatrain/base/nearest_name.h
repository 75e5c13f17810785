// The known name that a written one was meant to be, for "did you mean" in messages.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "megatrain/base/edit_distance.h"

namespace megatrain {

// Of the names that are considered, keeps the first of those least distant from what was written.
class NearestName {
 public:
  using Distance = std::function<int64_t(const std::string& written, const std::string& known)>;

  explicit NearestName(const std::string& written) : NearestName(written, most_typing_errors(written)) {}
  // Names that are more than `most` distant are not taken.
  NearestName(std::string written, int64_t most, Distance distance = edit_distance)
      : written_(std::move(written)), distance_(std::move(distance)), beyond_(most + 1) {}

  void consider(const std::string& known) { consider(known, known); }
  // `suggestion` is what to say where `known` is the nearest: of another spelling of a name, that name.
  void consider(const std::string& known, const std::string& suggestion);

  const std::string& found() const { return found_; }  // empty: none is near

 private:
  std::string written_;
  Distance distance_;
  int64_t beyond_;  // a nearer one has a distance below this
  std::string found_;
};

}  // namespace megatrain

// Runs Jinja templates as published chat templates use them. Unsupported features are Error(bad_input), never a guess.
#pragma once

#include <string>

#include "megatrain/chat/jinja/interpreter.h"

namespace megatrain::jinja {

constexpr size_t kMaxSourceBytes = size_t{1} << 20;  // published templates have less than 64 KiB

class Template {
 public:
  // `name` is for error messages.
  Template(const std::string& source, std::string name);

  Text render(Inputs inputs, RenderCost* cost = nullptr) const;  // sets the cost even if it fails
  bool has_generation_tags() const { return has_generation_tags_; }

 private:
  std::string name_;
  Body body_;
  bool has_generation_tags_ = false;
};

}  // namespace megatrain::jinja

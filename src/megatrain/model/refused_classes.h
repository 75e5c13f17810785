// The classes of transformers' AutoModelForCausalLM that no family here reads, and why. docs/families.md shows them.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace megatrain {

struct RefusedClass {
  std::string_view name;     // in config.json's architectures
  std::string_view reason;   // follows "is not supported: "
  std::string_view nearest;  // what to take in its place
};

const std::vector<RefusedClass>& refused_classes();
std::optional<RefusedClass> refused_class(std::string_view name);

}  // namespace megatrain

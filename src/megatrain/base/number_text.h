// A number for a message: "nan" whatever its sign, "inf", "-inf", "0.25".
#pragma once

#include <cmath>
#include <string>

#include <fmt/format.h>

namespace megatrain {

inline std::string number_text(double value) { return std::isnan(value) ? "nan" : fmt::format("{:g}", value); }

}  // namespace megatrain

// Host names that always mean this machine.
#pragma once

#include <string>
#include <string_view>

namespace megatrain {

// "localhost", an address in 127.0.0.0/8 or "::1", as a name or an address and in no other spelling.
bool is_loopback_name(std::string_view name);

// The name in a Host header, without its port: "localhost:8000", "[::1]:8000". Empty if it is malformed.
std::string host_of(std::string_view header);

// The name in an Origin header: "http://localhost:3000". Empty if there is none, as in "null".
std::string host_of_origin(std::string_view header);

}  // namespace megatrain

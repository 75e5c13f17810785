#include "megatrain/http/names.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>

namespace megatrain {

bool is_loopback_name(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (lower == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, lower.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, lower.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

std::string host_of(std::string_view header) {
  std::string_view port;
  std::string_view name = header;
  if (header.starts_with('[')) {
    const size_t end = header.find(']');
    if (end == std::string_view::npos) return "";
    name = header.substr(1, end - 1);
    port = header.substr(end + 1);
  } else if (const size_t colon = header.find(':'); colon != std::string_view::npos) {
    name = header.substr(0, colon);
    port = header.substr(colon);
  }
  if (!port.empty() &&
      (port[0] != ':' || !std::all_of(port.begin() + 1, port.end(), [](unsigned char c) { return std::isdigit(c); }))) {
    return "";
  }
  return std::string(name);
}

std::string host_of_origin(std::string_view header) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (header.starts_with(scheme)) return host_of(header.substr(scheme.size()));
  }
  return "";
}

}  // namespace megatrain

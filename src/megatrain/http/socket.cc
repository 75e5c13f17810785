#include "megatrain/http/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "megatrain/base/error.h"

namespace megatrain {

int port_of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

bool is_loopback(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
  return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == 127;
}

int listen_on(const HttpOptions& options) {
  addrinfo wish{};
  wish.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  wish.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int why = getaddrinfo(options.host.c_str(), std::to_string(options.port).c_str(), &wish, &found);
  if (why != 0)
    fail_config(
        fmt::format("--host {}: {}; expected an address or a name of this machine", options.host, gai_strerror(why)));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, freeaddrinfo);
  const int listener = ::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int one = 1;
  if (listener >= 0) ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (listener < 0 || ::bind(listener, found->ai_addr, found->ai_addrlen) != 0 || ::listen(listener, 128) != 0) {
    const int error = errno;
    if (listener >= 0) ::close(listener);
    const char* advice =
        error == EADDRINUSE ? "; stop the program that uses it, or give another port (0: any free one)"
        : error == EADDRNOTAVAIL
            ? "; this machine does not have this address: give one that it has, or 0.0.0.0 for all of them"
        : error == EACCES ? "; ports below 1024 need root: give another one"
                          : "";
    fail_io(
        fmt::format("could not listen on {} port {}: {}{}", options.host, options.port, std::strerror(error), advice));
  }
  return listener;
}

}  // namespace megatrain

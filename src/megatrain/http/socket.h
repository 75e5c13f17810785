// Sockets that listen, and what an address is.
#pragma once

#include <sys/socket.h>

#include <cstdint>

#include "megatrain/http/server.h"

namespace megatrain {

// A socket that listens, as HttpServer's constructor says.
int listen_on(const HttpOptions& options);

int port_of(const sockaddr_storage& address);
bool is_loopback(const sockaddr_storage& address);

// The sockets of this process at `port` of this machine: the listener and its connections. libevent does not tell when
// it closes one, so they are counted.
int64_t sockets_at(int port);

}  // namespace megatrain

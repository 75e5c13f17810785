// Listening sockets and their addresses.
#pragma once

#include <sys/socket.h>

#include "megatrain/http/server.h"

namespace megatrain {

// Opens a listening socket; throws like HttpServer's constructor.
int listen_on(const HttpOptions& options);

int port_of(const sockaddr_storage& address);
bool is_loopback(const sockaddr_storage& address);

}  // namespace megatrain

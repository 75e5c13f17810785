// Sockets that listen, and what an address is.
#pragma once

#include <sys/socket.h>

#include "megatrain/http/server.h"

namespace megatrain {

// A socket that listens, as HttpServer's constructor says.
int listen_on(const HttpOptions& options);

int port_of(const sockaddr_storage& address);
bool is_loopback(const sockaddr_storage& address);

}  // namespace megatrain

// A loopback client for tests: sends whole requests or any bytes, reads whole replies or lines as they arrive. It waits
// at most 60 seconds for a byte.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#include "megatrain/io/json.h"

namespace megatrain {

struct ClientReply {
  int status = 0;  // 0: the server closed the connection without one
  std::string head;
  std::string body;

  nlohmann::json json() const { return nlohmann::json::parse(body); }
};

class HttpClient {
 public:
  explicit HttpClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval most{.tv_sec = 60, .tv_usec = 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error("no server listens on port " + std::to_string(port));
  }
  ~HttpClient() { close(); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }

  void send_bytes(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;  // the reply says why
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }
  void send(const std::string& method, const std::string& path, const std::string& body = "",
            const std::string& headers = "Host: localhost\r\n") {
    send_bytes(method + " " + path + " HTTP/1.1\r\n" + headers + "Content-Length: " + std::to_string(body.size()) +
               "\r\n\r\n" + body);
  }

  // Reads the status line and headers; false: the connection was closed.
  bool read_head(ClientReply& reply) {
    size_t end;
    while ((end = got_.find("\r\n\r\n")) == std::string::npos) {
      if (!more()) return false;
    }
    reply.head = got_.substr(0, end + 2);
    got_.erase(0, end + 4);
    reply.status = reply.head.size() > 12 ? std::atoi(reply.head.c_str() + 9) : 0;
    chunked_ = reply.head.find("Transfer-Encoding: chunked") != std::string::npos;
    return true;
  }

  ClientReply read() {
    ClientReply reply;
    if (!read_head(reply)) return reply;
    if (chunked_) {
      for (std::string chunk; read_chunk(chunk);) reply.body += chunk;
      return reply;
    }
    const size_t at = reply.head.find("Content-Length: ");
    const size_t bytes = at == std::string::npos ? 0 : std::strtoull(reply.head.c_str() + at + 16, nullptr, 10);
    while (got_.size() < bytes && more()) {
    }
    reply.body = got_.substr(0, bytes);
    got_.erase(0, bytes);
    return reply;
  }

  // Reads the next piece of a chunked body, as the server wrote it; false: there are no more.
  bool read_chunk(std::string& chunk) {
    size_t line;
    while ((line = got_.find("\r\n")) == std::string::npos) {
      if (!more()) return false;
    }
    const size_t bytes = std::strtoull(got_.c_str(), nullptr, 16);
    while (got_.size() < line + 2 + bytes + 2) {
      if (!more()) return false;
    }
    chunk = got_.substr(line + 2, bytes);
    got_.erase(0, line + 2 + bytes + 2);
    return bytes > 0;
  }

  // Whether the server has closed the connection by now. Drops what it sent.
  bool is_closed() {
    char bytes[4096];
    ssize_t count;
    while ((count = ::recv(socket_, bytes, sizeof bytes, MSG_DONTWAIT)) > 0) {
    }
    return count == 0 || (errno != EAGAIN && errno != EINTR);
  }

  // Whether the server has closed the connection, after receiving what is still on its way.
  bool closed() {
    got_.clear();
    while (more()) got_.clear();
    return true;
  }

 private:
  bool more() {
    char bytes[4096];
    const ssize_t count = ::recv(socket_, bytes, sizeof bytes, 0);
    if (count > 0) got_.append(bytes, static_cast<size_t>(count));
    return count > 0;
  }

  int socket_;
  bool chunked_ = false;
  std::string got_;
};

// One request on a new connection.
inline ClientReply ask(int port, const std::string& method, const std::string& path, const std::string& body = "",
                       const std::string& headers = "Host: localhost\r\n") {
  HttpClient client(port);
  client.send(method, path, body, headers);
  return client.read();
}

}  // namespace megatrain

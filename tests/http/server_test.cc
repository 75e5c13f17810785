#include "megatrain/http/server.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <future>
#include <latch>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "megatrain/base/error.h"
#include "megatrain/http/names.h"
#include "tests/support/http_client.h"

namespace megatrain {

namespace {

// A server on its own port that runs while this lives.
struct Running {
  HttpServer server;
  std::thread thread;

  explicit Running(HttpOptions options = {}) : server(options) {}
  void start() {
    thread = std::thread([this] { server.run(); });
  }
  ~Running() {
    server.stop();
    if (thread.joinable()) thread.join();
  }
  int port() const { return server.port(); }
};

// A server, and a client that sent a request and has no reply yet.
struct Waiting {
  std::promise<HttpReply> asked;
  std::promise<void> gone;
  Running running;
  std::optional<HttpClient> client;

  Waiting(HttpOptions options, bool events) : running(options) {
    running.server.on("GET", "/wait", [this, events](const HttpRequest&, HttpReply reply) {
      if (events) reply.begin_events();
      reply.on_gone([this] { gone.set_value(); });
      asked.set_value(reply);
    });
    running.start();
    client.emplace(running.port());
    client->send("GET", "/wait");
  }
};

using Clients = std::vector<std::unique_ptr<HttpClient>>;

// A connection that has sent `bytes`.
HttpClient& connect(const Running& running, Clients& clients, const std::string& bytes) {
  clients.push_back(std::make_unique<HttpClient>(running.port()));
  clients.back()->send_bytes(bytes);
  return *clients.back();
}

// Whether the server closes all of them soon, although a byte trickles in every 10 ms.
bool are_closed_soon(const Clients& clients) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::chrono::steady_clock::now() < end) {
    if (std::all_of(clients.begin(), clients.end(), [](const auto& client) { return client->is_closed(); }))
      return true;
    for (const auto& client : clients) client->send_bytes("x");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// A request whose header does not end.
const std::string kHalf = "GET /a HTTP/1.1\r\nHost: localhost\r\nX: ";

std::string message_of(const ClientReply& reply) { return reply.json().at("error").at("message"); }

}  // namespace

TEST(HttpServer, AnswersExactPathsAndMethodsAndNothingElse) {
  Running running;
  running.server.on("GET", "/hello", [](const HttpRequest& request, HttpReply reply) {
    reply.send(200, "text/plain", "hello " + request.query);
  });
  running.server.on("POST", "/echo",
                    [](const HttpRequest& request, HttpReply reply) { reply.send(200, "text/plain", request.body); });
  running.start();
  const ClientReply hello = ask(running.port(), "GET", "/hello?you");
  EXPECT_EQ(hello.status, 200);
  EXPECT_EQ(hello.body, "hello you");
  EXPECT_EQ(ask(running.port(), "POST", "/echo", std::string(100000, 'x')).body, std::string(100000, 'x'));
  const ClientReply wrong = ask(running.port(), "DELETE", "/echo");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_NE(wrong.head.find("Allow: POST"), std::string::npos);
  EXPECT_EQ(message_of(wrong), "/echo takes POST, not DELETE");
  for (const char* path : {"/", "/hello/", "/etc/passwd", "/../../etc/passwd", "/%2e%2e/etc/passwd", "//etc/passwd",
                           "/hello/../../../etc/passwd", "/proc/self/environ"}) {
    const ClientReply reply = ask(running.port(), "GET", path);
    EXPECT_EQ(reply.status, 404) << path;
    EXPECT_EQ(reply.json().at("error").at("type"), "invalid_request_error");
  }
}

TEST(HttpServer, SeveralRequestsUseOneConnection) {
  Running running;
  running.server.on("GET", "/a", [](const HttpRequest&, HttpReply reply) { reply.send(200, "text/plain", "a"); });
  running.start();
  HttpClient client(running.port());
  for (int i = 0; i < 3; ++i) {
    client.send("GET", "/a");
    EXPECT_EQ(client.read().body, "a");
  }
  client.send("GET", "/a");  // two at once
  client.send("GET", "/b");
  EXPECT_EQ(client.read().status, 200);
  EXPECT_EQ(client.read().status, 404);
}

TEST(HttpServer, HeadHasTheHeadersOfGetAndNoBody) {
  Running running;
  running.server.on("GET", "/a", [](const HttpRequest&, HttpReply reply) { reply.send(200, "text/plain", "seven b"); });
  std::promise<HttpReply> asked;
  running.server.on("GET", "/events", [&](const HttpRequest&, HttpReply reply) {
    reply.begin_events();
    reply.event("nobody reads it");
    asked.set_value(reply);
  });
  running.start();
  HttpClient client(running.port());
  ClientReply reply;
  for (const char* path : {"/a", "/nowhere", "/events"}) {
    client.send("HEAD", path);
    ASSERT_TRUE(client.read_head(reply));
    EXPECT_EQ(reply.status, path == std::string("/nowhere") ? 404 : 200) << path;
    EXPECT_EQ(reply.head.find("Content-Length: 7") != std::string::npos, path == std::string("/a")) << reply.head;
    client.send("GET", "/a");  // the next reply begins right after it
    EXPECT_EQ(client.read().body, "seven b") << path;
  }
  EXPECT_TRUE(asked.get_future().get().gone());
}

TEST(HttpServer, WhatAProxyMayReadOtherwiseIsAnsweredWith400AndReachesNoHandler) {
  Running running;
  std::atomic<int> calls = 0;
  for (const char* method : {"GET", "POST"}) {
    running.server.on(method, "/a", [&](const HttpRequest&, HttpReply reply) {
      ++calls;
      reply.send(200, "text/plain", "a");
    });
  }
  running.start();
  const std::string hidden = "GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n", host = "Host: localhost\r\n";
  for (const std::string& bytes :
       {"HEAD /a HTTP/1.1\r\n" + host + "Content-Length: " + std::to_string(hidden.size()) + "\r\n\r\n",
        "POST /a HTTP/1.1\r\n" + host + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "POST /a HTTP/1.1\r\n" + host + "Content-Length: +70\r\n\r\n",
        "POST /a HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n",
        "POST /a HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
        "POST /a HTTP/1.1\r\n" + host + "Content-Length: 0\r\ncontent-length: 1\r\n\r\n",
        "GET /a HTTP/1.1\r\n" + host + "Origin: http://localhost\r\nOrigin: http://evil.example\r\n\r\n",
        "GET /a HTTP/1.1\r\n" + host + "X: a" + std::string(1, '\0') + "b\r\n\r\n",
        std::string("GET /a HTTP/1.1\nHost: localhost\n\n")}) {
    HttpClient client(running.port());
    client.send_bytes(bytes + hidden);
    const ClientReply reply = client.read();
    EXPECT_EQ(reply.status, 400) << bytes;
    EXPECT_FALSE(message_of(reply).empty());
    EXPECT_NE(reply.head.find("Connection: close"), std::string::npos);
    EXPECT_EQ(client.read().status, 0) << "the connection is closed";
  }
  EXPECT_EQ(calls, 0);
}

TEST(HttpServer, RequestsBeforeARefusedOneAreAnsweredFirst) {
  Running running;
  std::promise<HttpReply> asked;
  running.server.on("GET", "/a", [](const HttpRequest&, HttpReply reply) { reply.send(200, "text/plain", "a"); });
  running.server.on("GET", "/wait", [&](const HttpRequest&, HttpReply reply) { asked.set_value(reply); });
  running.start();
  HttpClient client(running.port());
  client.send_bytes(
      "GET /a HTTP/1.1\r\nHost: localhost\r\n\r\nGET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n"
      "GET /a HTTP/1.1\r\nHost : localhost\r\n\r\nGET /a HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.read().body, "a");
  asked.get_future().get().send(200, "text/plain", "b");
  EXPECT_EQ(client.read().body, "b");
  EXPECT_EQ(client.read().status, 400);
  EXPECT_EQ(client.read().status, 0);
}

TEST(HttpServer, ARequestIsRefusedThoughItsFirstLinesWereFine) {
  Running running({.request_s = 3600});
  running.server.on("POST", "/a", [](const HttpRequest&, HttpReply reply) { reply.send(200, "text/plain", "a"); });
  running.start();
  for (const std::string& rest :
       {std::string("X : y\r\n"), std::string("Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n")}) {
    HttpClient client(running.port()), other(running.port());
    client.send("POST", "/a", "x");
    EXPECT_EQ(client.read().status, 200);
    client.send_bytes("POST /a HTTP/1.1\r\nHost: localhost\r\n");
    other.send("POST", "/a", "x");
    EXPECT_EQ(other.read().status, 200) << "the server has read the first lines, too";
    client.send_bytes(rest);
    EXPECT_EQ(client.read().status, 400) << rest;
    EXPECT_TRUE(client.closed());
  }
}

TEST(HttpServer, OnLoopbackOnlyNamesOfThisMachineReachIt) {
  Running running;
  running.server.on("GET", "/a", [](const HttpRequest&, HttpReply reply) { reply.send(200, "text/plain", "a"); });
  running.start();
  EXPECT_TRUE(running.server.on_loopback());
  const auto status = [&](const std::string& headers) { return ask(running.port(), "GET", "/a", "", headers).status; };
  for (const char* host : {"localhost", "LOCALHOST:8000", "127.0.0.1:80", "127.8.9.1", "[::1]:9", "[::1]"})
    EXPECT_EQ(status(std::string("Host: ") + host + "\r\n"), 200) << host;
  for (const char* host : {"evil.example", "localhost.evil.example", "evil.example:8000", "127.0.0.1.evil.example",
                           "8.8.8.8", "[::2]", "[::1", "localhost:80x", ""})
    EXPECT_EQ(status(std::string("Host: ") + host + "\r\n"), 403) << host;
  EXPECT_EQ(status(""), 403);
  EXPECT_EQ(status("Host: localhost\r\nOrigin: https://evil.example\r\n"), 403);
  EXPECT_EQ(status("Host: localhost\r\nOrigin: null\r\n"), 403);
  EXPECT_EQ(status("Host: localhost\r\nOrigin: http://localhost:3000\r\n"), 200);
}

TEST(HttpServer, AnotherAddressIsReachedByAnyName) {
  Running running({.host = "0.0.0.0"});
  running.server.on("GET", "/a", [](const HttpRequest&, HttpReply reply) { reply.send(200, "text/plain", "a"); });
  running.start();
  EXPECT_FALSE(running.server.on_loopback());
  EXPECT_EQ(ask(running.port(), "GET", "/a", "", "Host: trainer.example\r\n").status, 200);
}

TEST(HttpServer, RefusesWhatIsTooLargeOrNoHttp) {
  Running running({.max_header_bytes = 4096, .max_body_bytes = 1000});
  running.server.on("POST", "/a", [](const HttpRequest&, HttpReply reply) { reply.send(200, "text/plain", "a"); });
  running.start();
  EXPECT_EQ(ask(running.port(), "POST", "/a", std::string(1000, 'x')).status, 200);
  const ClientReply large = ask(running.port(), "POST", "/a", std::string(1001, 'x'));
  EXPECT_EQ(large.status, 413);
  EXPECT_EQ(message_of(large), "the body has more than 1000 bytes");
  EXPECT_NE(ask(running.port(), "POST", "/a", std::string(100000, 'x')).status, 200);
  {
    HttpClient client(running.port());  // never completes its request
    client.send_bytes("POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 100; ++i) client.send_bytes("64\r\n" + std::string(100, 'x') + "\r\n");
    EXPECT_NE(client.read().status, 200);
  }
  {
    HttpClient client(running.port());
    client.send_bytes("POST /a HTTP/1.1\r\nHost: localhost\r\n");
    for (int i = 0; i < 1000; ++i) client.send_bytes("X-" + std::to_string(i) + ": y\r\n");
    EXPECT_NE(client.read().status, 200);
  }
  for (const std::string& bytes : {std::string("\r\n\r\n"), std::string("GET\r\n\r\n"), std::string("nonsense\r\n\r\n"),
                                   std::string("GET /a HTTP/9.9.9\r\n\r\n"), std::string(64, '\0') + "\r\n\r\n",
                                   std::string("POST /a HTTP/1.1\r\nContent-Length: -5\r\n\r\n"),
                                   std::string("POST /a HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n")}) {
    HttpClient client(running.port());
    client.send_bytes(bytes);
    client.send("GET", "/a");
    EXPECT_NE(client.read().status, 200);
  }
  EXPECT_EQ(ask(running.port(), "POST", "/a", "x").status, 200);
}

TEST(HttpServer, EventsComeAsTheyAreSentFromAnotherThread) {
  Running running;
  std::vector<std::thread> threads;
  std::promise<void> first_was_read;
  running.server.on("GET", "/events", [&](const HttpRequest&, HttpReply reply) {
    threads.emplace_back([reply, &first_was_read] {
      reply.begin_events();
      reply.event("one");
      first_was_read.get_future().wait();
      reply.event("two\nlines", "named");
      reply.end();
      reply.event("too late");
    });
  });
  running.start();
  HttpClient client(running.port());
  client.send("GET", "/events");
  ClientReply head;
  ASSERT_TRUE(client.read_head(head));
  EXPECT_EQ(head.status, 200);
  EXPECT_NE(head.head.find("text/event-stream"), std::string::npos);
  std::string chunk;
  ASSERT_TRUE(client.read_chunk(chunk));
  EXPECT_EQ(chunk, "data: one\n\n");
  first_was_read.set_value();
  ASSERT_TRUE(client.read_chunk(chunk));
  EXPECT_EQ(chunk, "event: named\ndata: two\ndata: lines\n\n");
  EXPECT_FALSE(client.read_chunk(chunk));
  for (std::thread& thread : threads) thread.join();
}

TEST(HttpServer, EventsStayOpenWhileNothingIsSaid) {
  Waiting waiting({.timeout_s = 1, .heartbeat_s = 0.25}, true);
  const HttpReply reply = waiting.asked.get_future().get();
  ClientReply head;
  ASSERT_TRUE(waiting.client->read_head(head));
  std::string chunk;
  for (int i = 0; i < 10; ++i) {  // far longer than the server waits for a client's next byte
    ASSERT_TRUE(waiting.client->read_chunk(chunk)) << i;
    EXPECT_EQ(chunk, ":\n\n");
  }
  EXPECT_FALSE(reply.gone());
  reply.event("at last");
  do {
    ASSERT_TRUE(waiting.client->read_chunk(chunk));
  } while (chunk.starts_with(':'));
  EXPECT_EQ(chunk, "data: at last\n\n");
  waiting.client->close();
  waiting.gone.get_future().wait();
}

TEST(HttpServer, AReplyKnowsWhenItsClientHasGone) {
  for (const bool events : {false, true}) {
    Waiting waiting({}, events);
    const HttpReply reply = waiting.asked.get_future().get();
    EXPECT_FALSE(reply.gone());
    waiting.client->close();
    waiting.gone.get_future().wait();
    EXPECT_TRUE(reply.gone());
    reply.event("nothing happens");
    reply.send(200, "text/plain", "nothing happens");
  }
}

TEST(HttpServer, AClientThatReadsNothingIsGivenUp) {
  Waiting waiting({.max_unread_bytes = 100000}, true);
  const HttpReply reply = waiting.asked.get_future().get();
  for (std::future<void> future = waiting.gone.get_future();
       future.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready;)
    reply.event(std::string(1 << 16, 'x'));
  EXPECT_TRUE(reply.gone());
}

TEST(HttpServer, AnAnswerThatFailsOrIsForgottenIsAnError) {
  Running running;
  running.server.on("GET", "/forgotten", [](const HttpRequest&, HttpReply) {});
  running.server.on("GET", "/theirs", [](const HttpRequest&, HttpReply) { fail_input("the text is no text"); });
  running.server.on("GET", "/ours", [](const HttpRequest&, HttpReply) { fail_internal("a bug"); });
  running.start();
  EXPECT_EQ(ask(running.port(), "GET", "/forgotten").status, 500);
  const ClientReply theirs = ask(running.port(), "GET", "/theirs");
  EXPECT_EQ(theirs.status, 400);
  EXPECT_EQ(message_of(theirs), "the text is no text");
  EXPECT_EQ(ask(running.port(), "GET", "/ours").status, 500);
}

TEST(HttpServer, ARequestThatIsNotWholeInTimeIsGivenUpWhateverTricklesIn) {
  Running running({.request_s = 1});
  for (const char* method : {"GET", "POST"})
    running.server.on(method, "/a", [](const HttpRequest&, HttpReply reply) { reply.send(200, "text/plain", "a"); });
  running.start();
  HttpClient idle(running.port());
  idle.send("GET", "/a");
  EXPECT_EQ(idle.read().status, 200);
  Clients clients;
  connect(running, clients, "");
  connect(running, clients, kHalf);
  connect(running, clients, "POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n");
  HttpClient& used = connect(running, clients, "GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(used.read().status, 200);
  used.send_bytes(kHalf);
  EXPECT_TRUE(are_closed_soon(clients));
  idle.send("GET", "/a");
  EXPECT_EQ(idle.read().status, 200) << "a connection between two requests has more time";
}

TEST(HttpServer, RequestsThatAreNotWholeHoldBoundedMemory) {
  Running running({.max_partial_bytes = 1'000'000, .request_s = 3600});
  running.server.on("POST", "/a", [](const HttpRequest&, HttpReply reply) { reply.send(200, "text/plain", "a"); });
  running.start();
  Clients clients;
  for (int i = 0; i < 3; ++i) {
    connect(running, clients,
            "POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 600001\r\n\r\n" + std::string(600'000, 'x'));
  }
  const auto closed = [](const auto& client) { return client->is_closed(); };
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::count_if(clients.begin(), clients.end(), closed) < 2 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(std::count_if(clients.begin(), clients.end(), closed), 2) << "there is room for one of them";
  EXPECT_EQ(ask(running.port(), "POST", "/a", "x").status, 200);
  const auto left = std::find_if_not(clients.begin(), clients.end(), closed);
  ASSERT_NE(left, clients.end());
  (*left)->send_bytes("x");
  EXPECT_EQ((*left)->read().status, 200);
}

TEST(HttpServer, BytesThatComeGiveARequestTime) {
  Running running({.request_s = 1, .least_bytes_per_s = 1});
  running.server.on("POST", "/a", [](const HttpRequest&, HttpReply reply) { reply.send(200, "text/plain", "a"); });
  running.start();
  Clients clients;
  HttpClient& slow = connect(
      running, clients, "POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 101\r\n\r\n" + std::string(100, 'x'));
  EXPECT_TRUE(connect(running, clients, "").closed()) << "it came later and has sent nothing";
  slow.send_bytes("x");
  EXPECT_EQ(slow.read().status, 200);
}

TEST(HttpServer, WhatWaitsLongestMakesRoomAndWhatIsInWorkDoesNot) {
  Running running({.max_connections = 4, .timeout_s = 3600, .request_s = 3600, .least_wait_s = 0});
  std::latch in_work(2);
  std::promise<HttpReply> asked, streams;
  running.server.on("GET", "/a", [](const HttpRequest&, HttpReply reply) { reply.send(200, "text/plain", "a"); });
  running.server.on("GET", "/wait", [&](const HttpRequest&, HttpReply reply) {
    asked.set_value(reply);
    in_work.count_down();
  });
  running.server.on("GET", "/events", [&](const HttpRequest&, HttpReply reply) {
    reply.begin_events();
    streams.set_value(reply);
    in_work.count_down();
  });
  running.start();
  HttpClient stream(running.port()), waiting(running.port());
  stream.send("GET", "/events");
  waiting.send("GET", "/wait");
  in_work.wait();
  Clients clients;
  HttpClient& first = connect(running, clients, kHalf);
  HttpClient& second = connect(running, clients, kHalf);
  EXPECT_EQ(ask(running.port(), "GET", "/a").status, 200);
  EXPECT_EQ(first.read().status, 0);
  EXPECT_TRUE(first.is_closed());
  second.send_bytes("y\r\n\r\n");
  EXPECT_EQ(second.read().status, 200);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(ask(running.port(), "GET", "/a").status, 200);
  asked.get_future().get().send(200, "text/plain", "at last");
  EXPECT_EQ(waiting.read().body, "at last");
  streams.get_future().get().event("on");
  ClientReply reply;
  std::string chunk;
  ASSERT_TRUE(stream.read_head(reply));
  EXPECT_TRUE(stream.read_chunk(chunk));
}

TEST(HttpServer, AHundredConnectionsThatAskForNothingDoNotKeepAnotherOut) {
  Running running({.timeout_s = 3600, .request_s = 3600, .least_wait_s = 0.1});
  running.server.on("GET", "/a", [](const HttpRequest&, HttpReply reply) { reply.send(200, "text/plain", "a"); });
  running.start();
  Clients clients;
  for (int i = 0; i < 100; ++i) connect(running, clients, i % 2 == 0 ? kHalf : "");
  EXPECT_EQ(ask(running.port(), "GET", "/a").status, 200);
}

TEST(HttpServer, MoreConnectionsThanItTakesWaitUntilOneCloses) {
  Running running({.max_connections = 3, .least_wait_s = 3600});
  running.server.on("GET", "/a", [](const HttpRequest&, HttpReply reply) { reply.send(200, "text/plain", "a"); });
  running.start();
  std::vector<std::unique_ptr<HttpClient>> held;
  for (int i = 0; i < 3; ++i) {
    held.push_back(std::make_unique<HttpClient>(running.port()));
    held.back()->send("GET", "/a");
    EXPECT_EQ(held.back()->read().status, 200);
  }
  HttpClient waiting(running.port());
  waiting.send("GET", "/a");
  std::future<int> status = std::async(std::launch::async, [&] { return waiting.read().status; });
  EXPECT_EQ(status.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
  held.pop_back();
  EXPECT_EQ(status.get(), 200);
}

TEST(HttpServer, StopsWithRequestsInFlight) {
  std::promise<HttpReply> asked;
  std::optional<HttpReply> reply;
  bool gone = false;
  {
    Running running;
    running.server.on("GET", "/wait", [&](const HttpRequest&, HttpReply wait) {
      wait.on_gone([&] { gone = true; });
      asked.set_value(wait);
    });
    running.start();
    HttpClient client(running.port());
    client.send("GET", "/wait");
    reply = asked.get_future().get();
  }
  EXPECT_TRUE(gone);
  EXPECT_TRUE(reply->gone());
  reply->send(200, "text/plain", "nothing happens");
}

TEST(HttpServer, StopsByASignalsFlagAndCallsTimers) {
  HttpServer server({});
  volatile std::sig_atomic_t stop = 0;
  int calls = 0;
  server.every(0.001, [&] {
    if (++calls == 3) stop = 15;
  });
  server.run(&stop);
  EXPECT_GE(calls, 3);
}

TEST(HttpServer, SaysWhyItCannotListen) {
  HttpServer server({});
  try {
    HttpServer second({.port = server.port()});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::io);
    EXPECT_NE(std::string(error.what()).find("Address already in use"), std::string::npos);
  }
  EXPECT_THROW(HttpServer({.host = "no such name"}), Error);
}

}  // namespace megatrain

#include "megatrain/http/request_scanner.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace megatrain {

namespace {

using namespace std::string_literals;

constexpr int64_t kMostBytes = 4096;

// The status of a refusal, or 0 if accepted; must not depend on how the bytes arrive.
int status_of(std::string_view bytes) {
  RequestScanner whole(kMostBytes), single(kMostBytes);
  whole.take(bytes);
  for (size_t i = 0; i < bytes.size() && !single.refused(); ++i) single.take(bytes.substr(i, 1));
  EXPECT_EQ(whole.status(), single.status()) << bytes;
  EXPECT_EQ(whole.message(), single.message());
  EXPECT_EQ(whole.request_begin(), single.request_begin());
  EXPECT_EQ(whole.message().empty(), whole.status() == 0);
  return whole.status();
}

std::string post(const std::string& headers, const std::string& body) {
  return "POST /a HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n" + body;
}

const std::string kChunked = "Transfer-Encoding: chunked\r\n";

}  // namespace

TEST(RequestScanner, TakesWhatClientsSend) {
  for (const std::string& bytes :
       {"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"s, "GET /a?b=c%20 HTTP/1.0\r\n\r\n"s,
        "HEAD / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"s,
        post("content-length:  5  \r\nX-Name:\r\nY: caf\xc3\xa9\tand more\r\n", "\0\r\n\n:"s),
        post("TRANSFER-ENCODING: Chunked\r\n", "5\r\nabcde\r\n00aF\r\n" + std::string(0xaf, '\n') + "\r\n0\r\n\r\n")}) {
    EXPECT_EQ(status_of(bytes), 0) << bytes;
    EXPECT_EQ(status_of(bytes + bytes + bytes), 0) << "several on one connection";
  }
}

TEST(RequestScanner, KnowsWhereEachRequestBegins) {
  const std::string first = post("Content-Length: 3\r\n", "abc"), second = post(kChunked, "3\r\nabc\r\n0\r\n\r\n");
  RequestScanner scanner(kMostBytes);
  EXPECT_FALSE(scanner.take(first + second + "GET / HTTP/1.1\r\nHost : a\r\n\r\n"));
  EXPECT_EQ(scanner.request_begin(), std::ssize(first + second));
}

TEST(RequestScanner, CountsTheBytesOfABodyWithoutASight) {
  RequestScanner scanner(kMostBytes);
  EXPECT_FALSE(scanner.take_body(1)) << "a request line";
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(scanner.take(post("Content-Length: 5\r\n", "a")));
    EXPECT_FALSE(scanner.take_body(5)) << "the last one is another request's";
    EXPECT_TRUE(scanner.take_body(3));
    EXPECT_TRUE(scanner.take_body(1));
    EXPECT_FALSE(scanner.take_body(1));
  }
  EXPECT_TRUE(scanner.take(post(kChunked, "3\r\na")));
  EXPECT_TRUE(scanner.take_body(2));
  EXPECT_FALSE(scanner.take_body(2)) << "the line end behind a chunk";
  EXPECT_TRUE(scanner.take("\r\n0\r\n\r\n" + post("", "")));
}

TEST(RequestScanner, RefusesLinesThatOthersReadOtherwise) {
  for (const std::string& bytes :
       {"\r\nGET / HTTP/1.1\r\n"s, "GET / HTTP/1.1\n"s, "GET / HTTP/1.1\r\nHost: a\n"s, "GET  / HTTP/1.1\r\n"s,
        "GET / HTTP/1.1 \r\n"s, " GET / HTTP/1.1\r\n"s, "GET /\tb HTTP/1.1\r\n"s, "GET /a b HTTP/1.1\r\n"s,
        "GET /\r\n"s, "GET / HTTP/2.0\r\n"s, "GET / http/1.1\r\n"s, "G(T / HTTP/1.1\r\n"s, "GET /\0 HTTP/1.1\r\n"s,
        "GET /\xff HTTP/1.1\r\n"s, "GET /\rb HTTP/1.1\r\n"s}) {
    EXPECT_EQ(status_of(bytes), 400) << bytes;
  }
  for (const std::string& header : {"Content-Length : 0\r\n"s, "Transfer-Encoding\t: chunked\r\n"s, " X: y\r\n"s,
                                    "X: y\r\n z\r\n"s, "X: y\r\n\tz\r\n"s, "X\r\n"s, ": y\r\n"s, "X: a\0b\r\n"s,
                                    "X\0: b\r\n"s, "X: a\rb\r\n"s, "X: a\x7f\r\n"s, "X: y\n"s, "X: y\n\r\n"s}) {
    EXPECT_EQ(status_of(post(header, "")), 400) << header;
  }
}

TEST(RequestScanner, RefusesBodiesWhoseEndIsNotCertain) {
  for (const std::string& header : {"Content-Length: +5\r\n"s,
                                    "Content-Length: -5\r\n"s,
                                    "Content-Length: 0x5\r\n"s,
                                    "Content-Length: 5 5\r\n"s,
                                    "Content-Length: 5,5\r\n"s,
                                    "Content-Length:\r\n"s,
                                    "Content-Length: 5\t\r\n"s,
                                    "Content-Length:\t5\r\n"s,
                                    "Content-Length: 99999999999999999999\r\n"s,
                                    "Content-Length: 5\r\nContent-Length: 5\r\n"s,
                                    "Content-Length: 5\r\ncontent-length: 6\r\n"s,
                                    "Content-Length: 5\r\n" + kChunked,
                                    kChunked + "Content-Length: 5\r\n",
                                    kChunked + kChunked,
                                    "Transfer-Encoding: identity\r\n"s,
                                    "Transfer-Encoding: gzip, chunked\r\n"s,
                                    "Transfer-Encoding: chunked, chunked\r\n"s,
                                    "Transfer-Encoding:\tchunked\r\n"s,
                                    "Transfer-Encoding: xchunked\r\n"s,
                                    "Transfer-Encoding:\r\n"s,
                                    "Host: other\r\n"s,
                                    "Origin: http://a\r\nOrigin: http://b\r\n"s}) {
    EXPECT_EQ(status_of(post(header, "")), 400) << header;
  }
  EXPECT_EQ(status_of("POST / HTTP/1.0\r\n" + kChunked + "\r\n"), 400);
  for (const char* method : {"HEAD", "TRACE", "BREW"}) {
    for (const std::string& header : {"Content-Length: 5\r\n"s, kChunked})
      EXPECT_EQ(status_of(method + " / HTTP/1.1\r\n"s + header + "\r\n"), 400) << method << header;
  }
}

TEST(RequestScanner, RefusesChunksThatOthersReadOtherwise) {
  for (const std::string& body :
       {"0x5\r\nabcde\r\n"s, "+5\r\nabcde\r\n"s, "-5\r\n"s, "5 \r\nabcde\r\n"s, " 5\r\nabcde\r\n"s, "\r\n5\r\n"s,
        "5;a=b\r\nabcde\r\n"s, "5\nabcde\r\n"s, "5\r\nabcde\n"s, "5\r\nabcdef\r\n"s, "g\r\n"s, "5\r\nabcde\r\n\r\n"s,
        "fffffffffffffffff\r\n"s, "0\r\nHost: other\r\n"s, "0\r\n\n"s, std::string(100, '0')}) {
    EXPECT_EQ(status_of(post(kChunked, body)), 400) << body;
  }
}

TEST(RequestScanner, RefusesAHeadThatIsTooLong) {
  const std::string most(kMostBytes, 'x');
  EXPECT_EQ(status_of(most + "x"), 431);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nX: " + most), 431);
  std::string many = "GET / HTTP/1.1\r\n";
  while (std::ssize(many) <= kMostBytes) many += "X: y\r\n";
  EXPECT_EQ(status_of(many), 431);
  EXPECT_EQ(status_of(post("Content-Length: 5000\r\n", std::string(5000, 'x')) + post("", "")), 0) << "of each request";
}

}  // namespace megatrain

// Carries messages over TCP connections that the caller has opened.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "clock.h"
#include "frame.h"
#include "transport.h"

namespace chakrascope::emulation {

// Prefix of the error for a connected peer that is no longer reachable.
inline constexpr const char* kSilence = "nothing that was sent has arrived";

class TcpTransport final : public Transport {
  public:
    struct Connection {
        int socket;         // a connected socket, which the transport makes non-blocking and closes
        std::int32_t peer;  // rank at the other end
        std::int32_t path;
    };

    // Each message is sent over the connection to its peer with the fewest queued bytes, or round-robin
    // on a tie.
    explicit TcpTransport(const std::vector<Connection>& connections);
    ~TcpTransport() override;
    TcpTransport(const TcpTransport&) = delete;
    TcpTransport& operator=(const TcpTransport&) = delete;

    void post(std::int32_t peer, const Header& header) override;
    void progress(Until until, std::vector<Event>& events) override;
    bool idle() const override { return unsent_ == 0; }

  private:
    struct Outgoing {
        Header header;
        Frame frame;
        std::uint64_t done = 0;  // bytes of the message that have been sent, including the frame
        Time begun = 0;
        std::uint64_t total() const { return sizeof(Frame) + header.size; }
    };

    struct Stream {
        Connection end;
        bool readable = true;
        bool writable = true;
        bool closed = false;  // whether the peer closed the connection; earlier data may be readable
        std::deque<Outgoing> queue;
        std::uint64_t queued = 0;  // queued bytes
        // State of the message that is being received.
        std::array<char, sizeof(Frame)> frame{};
        std::size_t framed = 0;
        std::uint64_t missing = 0;
        Header header;
        Time begun = 0;
    };

    void poll();
    bool send(Stream& stream, std::vector<Event>& events);
    bool receive(Stream& stream, std::vector<Event>& events);
    void parse(Stream& stream, const char* bytes, std::size_t size, Time now, std::vector<Event>& events);
    void begin(Stream& stream, Time now);
    [[noreturn]] static void lose(const Stream& stream, const std::string& why);

    int epoll_ = -1;
    Sleeper sleeper_;
    std::vector<std::unique_ptr<Stream>> streams_;
    std::unordered_map<std::int32_t, std::vector<Stream*>>
        ways_;                  // connections by peer, the next connection in round-robin order first
    std::uint64_t unsent_ = 0;  // number of messages that have not left completely
    std::vector<char> payload_;
    std::vector<char> discarded_;
};

}  // namespace chakrascope::emulation

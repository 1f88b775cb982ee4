// Messages over TCP connections that somebody else has opened.
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

// How the loss of a peer begins that is still there but whose network carries nothing any more.
inline constexpr const char* kSilence = "nothing that was sent has arrived";

class TcpTransport final : public Transport {
  public:
    struct Connection {
        int socket;         // connected; becomes non-blocking, and is the transport's to close
        std::int32_t peer;  // rank at the other end
        std::int32_t path;
    };

    // Every message takes the connection to its peer that has the fewest bytes before it, in turn where
    // several have as few.
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
        std::uint64_t done = 0;  // bytes, those of the frame included
        Time begun = 0;
        std::uint64_t total() const { return sizeof(Frame) + header.size; }
    };

    struct Stream {
        Connection end;
        bool readable = true;
        bool writable = true;
        bool closed = false;  // by the peer; what it sent before may still be there
        std::deque<Outgoing> queue;
        std::uint64_t queued = 0;  // bytes
        // Of the message that is coming in.
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
    std::unordered_map<std::int32_t, std::vector<Stream*>> ways_;  // by peer, the next in turn first
    std::uint64_t unsent_ = 0;                                     // messages
    std::vector<char> payload_;
    std::vector<char> discarded_;
};

}  // namespace chakrascope::emulation

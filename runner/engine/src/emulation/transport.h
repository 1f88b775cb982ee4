// What carries the messages of one rank to the ranks of other processes.
//
// All times are of this machine's monotonic clock, in ns (CLOCK_MONOTONIC; time.monotonic_ns in Python).
#pragma once

#include <cstdint>
#include <vector>

namespace chakrascope::emulation {

using Time = std::uint64_t;

// A time to wait for: exact ones to within some tens of microseconds.
struct Until {
    Time at = 0;
    bool exact = true;
};

enum class MessageKind : std::uint32_t {
    Data,
    Answered,  // data whose sender wants to know when it is there
    Answer,    // that it is; without bytes of its own
    Request,   // that the receiver of a message awaits it; in order behind data, and no message of the job
};

// Goes ahead of the bytes of a message, and tells the receiver all that it needs to know.
struct Header {
    std::uint64_t size = 0;    // bytes that follow
    std::int64_t tag = 0;      // with source and size what a receive asks for
    std::uint64_t number = 0;  // of the messages of its source, from 0; of an answer: that of the message
    std::int32_t source = 0;
    MessageKind kind = MessageKind::Data;
    // The node whose start began the chain of events that led to the message.
    std::int32_t origin_rank = -1;
    std::int32_t origin_node = -1;
    std::uint32_t range = 0;  // with the tag
};

// Something that happened to a message.
struct Event {
    enum class Kind : std::uint8_t { Sent, Came };
    Kind kind = Kind::Sent;
    std::int32_t peer = 0;  // where it went, or whence it came
    std::int32_t path = 0;  // which of the ways to the peer it took, such as a pair of network interfaces
    Header header;
    Time begun = 0;  // its first byte was handed to the network, or came from there
    Time ended = 0;  // its last byte
};

// One rank's side of a network. A transport is used by one thread.
//
// The bytes of a message are of no account, but there are as many as its header says. They come from and go
// to buffers of a bounded size, however large the message.
class Transport {
  public:
    virtual ~Transport() = default;
    // Send a message to another rank; returns at once, and `progress` does the work.
    virtual void post(std::int32_t peer, const Header& header) = 0;
    // Move bytes until something happened to a message, which is added to `events`, but not beyond a time;
    // one that is past asks for what can be done at once. Leaves the processor to others while it waits for
    // long. Raises BackendError when a peer is lost.
    virtual void progress(Until until, std::vector<Event>& events) = 0;
    // Whether all that was posted has left this process.
    virtual bool idle() const = 0;
};

}  // namespace chakrascope::emulation

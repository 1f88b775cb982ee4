#include "tcp.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "../errors.h"

namespace chakrascope::emulation {
namespace {

// The number of bytes per system call: large enough for fast transfers, and small enough to check the
// clock regularly.
constexpr std::size_t kPiece = 256 << 10;
constexpr int kMostReady = 64;
// The longest time without a TCP acknowledgement before a peer counts as lost. The default of TCP is 15
// minutes.
constexpr int kSilenceMs = 10'000;

std::string reason() {
    if (errno != ETIMEDOUT) return std::strerror(errno);
    return kSilence + (" for " + std::to_string(kSilenceMs / 1000) + " s");
}

}  // namespace

TcpTransport::TcpTransport(const std::vector<Connection>& connections)
    : epoll_(epoll_create1(EPOLL_CLOEXEC)), payload_(kPiece), discarded_(kPiece) {
    if (epoll_ < 0) throw engine::BackendError("There is no epoll: " + reason() + ".");
    std::mt19937 random(1);  // incompressible data
    for (char& byte : payload_) byte = static_cast<char>(random());
    for (const Connection& connection : connections) {
        Stream& stream = *streams_.emplace_back(std::make_unique<Stream>());
        stream.end = connection;
        ways_[connection.peer].push_back(&stream);
        const int one = 1;
        setsockopt(connection.socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        setsockopt(connection.socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &kSilenceMs, sizeof kSilenceMs);
        fcntl(connection.socket, F_SETFL, fcntl(connection.socket, F_GETFL) | O_NONBLOCK);
        epoll_event event{};
        event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
        event.data.ptr = &stream;
        if (epoll_ctl(epoll_, EPOLL_CTL_ADD, connection.socket, &event) != 0) lose(stream, reason());
    }
}

TcpTransport::~TcpTransport() {
    for (const auto& stream : streams_) close(stream->end.socket);
    if (epoll_ >= 0) close(epoll_);
}

void TcpTransport::post(std::int32_t peer, const Header& header) {
    const auto ways = ways_.find(peer);
    if (ways == ways_.end())
        throw engine::BackendError("There is no connection to rank " + std::to_string(peer) + ".");
    const auto least =
        std::min_element(ways->second.begin(), ways->second.end(),
                         [](const Stream* a, const Stream* b) { return a->queued < b->queued; });
    Stream& stream = **least;
    std::rotate(least, least + 1, ways->second.end());
    Outgoing message;
    message.header = header;
    message.frame = to_frame(header);
    stream.queued += message.total();
    ++unsent_;
    // An acknowledgement is queued directly behind the message that is being sent.
    if (header.kind == MessageKind::Answer && stream.queue.size() > 1) {
        stream.queue.insert(stream.queue.begin() + 1, message);
    } else {
        stream.queue.push_back(message);
    }
}

void TcpTransport::progress(Until until, std::vector<Event>& events) {
    for (;;) {
        poll();
        bool moved = false;
        for (const auto& stream : streams_) {
            if (stream->readable) moved = receive(*stream, events) || moved;
            if (stream->writable && !stream->queue.empty()) moved = send(*stream, events) || moved;
        }
        if (!events.empty() || monotonic_ns() >= until.at) return;
        if (!moved) sleeper_.doze(epoll_, until);
    }
}

void TcpTransport::poll() {
    std::array<epoll_event, kMostReady> ready{};
    const int count = epoll_wait(epoll_, ready.data(), kMostReady, 0);
    for (int i = 0; i < count; ++i) {
        auto& stream = *static_cast<Stream*>(ready[i].data.ptr);
        const std::uint32_t what = ready[i].events;
        if ((what & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) stream.closed = true;
        if ((what & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) stream.readable = true;
        if ((what & EPOLLOUT) != 0) stream.writable = true;
    }
}

// Write a piece of the queued data, and return whether any bytes were written.
bool TcpTransport::send(Stream& stream, std::vector<Event>& events) {
    std::size_t room = kPiece;
    bool moved = false;
    while (room > 0 && !stream.queue.empty()) {
        Outgoing& message = stream.queue.front();
        if (message.done == 0 && message.begun == 0) message.begun = monotonic_ns();
        const std::size_t ahead = sizeof(Frame) - std::min<std::uint64_t>(message.done, sizeof(Frame));
        const std::size_t body = std::min<std::uint64_t>(room, message.total() - message.done - ahead);
        std::array<iovec, 2> parts{
            iovec{reinterpret_cast<char*>(&message.frame) + sizeof(Frame) - ahead, ahead},
            iovec{payload_.data(), body}};
        msghdr call{};
        call.msg_iov = parts.data();
        call.msg_iovlen = parts.size();
        const ssize_t sent = sendmsg(stream.end.socket, &call, MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno == EINTR) continue;
            if (errno != EAGAIN && errno != EWOULDBLOCK) lose(stream, reason());
            stream.writable = false;
            return moved;
        }
        moved = true;
        const auto bytes = static_cast<std::size_t>(sent);
        message.done += bytes;
        stream.queued -= bytes;
        room -= std::min(room, bytes);
        if (message.done < message.total()) continue;
        events.push_back({Event::Kind::Sent, stream.end.peer, stream.end.path, message.header, message.begun,
                          monotonic_ns()});
        stream.queue.pop_front();
        --unsent_;
    }
    return moved;
}

// Read a piece of the available data, and return whether any bytes were read.
bool TcpTransport::receive(Stream& stream, std::vector<Event>& events) {
    const ssize_t got = recv(stream.end.socket, discarded_.data(), discarded_.size(), 0);
    if (got < 0) {
        if (errno == EINTR) return true;
        if (errno != EAGAIN && errno != EWOULDBLOCK) lose(stream, reason());
        stream.readable = false;
        return false;
    }
    if (got == 0) lose(stream, "it was closed at the other end");
    const auto size = static_cast<std::size_t>(got);
    if (size < discarded_.size() && !stream.closed) stream.readable = false;
    parse(stream, discarded_.data(), size, monotonic_ns(), events);
    return true;
}

void TcpTransport::parse(Stream& stream, const char* bytes, std::size_t size, Time now,
                         std::vector<Event>& events) {
    while (size > 0) {
        if (stream.framed < sizeof(Frame)) {
            const std::size_t part = std::min(size, sizeof(Frame) - stream.framed);
            std::memcpy(stream.frame.data() + stream.framed, bytes, part);
            stream.framed += part;
            bytes += part;
            size -= part;
            if (stream.framed < sizeof(Frame)) return;
            begin(stream, now);
        }
        const std::size_t part = std::min<std::uint64_t>(size, stream.missing);
        stream.missing -= part;
        bytes += part;
        size -= part;
        if (stream.missing > 0) return;
        stream.framed = 0;
        events.push_back(
            {Event::Kind::Came, stream.end.peer, stream.end.path, stream.header, stream.begun, now});
    }
}

void TcpTransport::begin(Stream& stream, Time now) {
    Frame frame{};
    std::memcpy(&frame, stream.frame.data(), sizeof frame);
    if (!is_frame_of(frame, stream.end.peer)) lose(stream, "what came is not a message of the emulation");
    stream.header = to_header(frame);
    stream.missing = frame.size;
    stream.begun = now;
}

void TcpTransport::lose(const Stream& stream, const std::string& why) {
    throw engine::BackendError("The connection to rank " + std::to_string(stream.end.peer) +
                               " is lost: " + why + ".");
}

}  // namespace chakrascope::emulation

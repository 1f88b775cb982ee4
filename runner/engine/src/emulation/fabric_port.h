// A libfabric endpoint and its traffic.
#pragma once

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "fabric.h"
#include "fabric_library.h"
#include "frame.h"

namespace chakrascope::emulation {

// Messages travel in packets of bounded size with credit-based flow control. A receiver has buffers for
// a number of packets from each peer. The greeting of the receiver announces this number. The receiver
// grants more packets when it has processed packets. A sender therefore sends only if the receiver has
// a free buffer. The memory of both sides is independent of the message size.
class FabricPort {
  public:
    FabricPort(const std::string& provider, const std::string& address,
               const FabricTransport::Identity& identity, std::int32_t path);
    ~FabricPort();
    FabricPort(const FabricPort&) = delete;
    FabricPort& operator=(const FabricPort&) = delete;

    const std::string& name() const { return name_; }
    // Begin the handshake with the peers, given the names of their endpoints. `move` sends the greetings.
    void greet(const std::map<std::int32_t, std::string>& peers);
    // Return the peers from which no greeting has arrived, or to which this rank's greeting has not
    // been sent.
    std::vector<std::int32_t> strangers() const;
    // Remove the files of the endpoint from the file system. Call this function only after all peers
    // have opened the files.
    void forget_name() const;

    bool reaches(std::int32_t peer) const { return peers_.count(peer) != 0; }
    std::uint64_t queued(std::int32_t peer) const { return peers_.at(peer).queued; }
    void post(std::int32_t peer, const Header& header);
    // Process all sends and receives that are possible now, and return whether there were any.
    bool move(std::vector<Event>& events);
    bool idle() const { return unsent_ == 0; }

    // Return a file descriptor that becomes readable when there is work to do; -1 if the provider has
    // no such file.
    int wait_file() const { return wait_file_; }
    // Whether the caller may sleep until the file becomes readable.
    bool may_wait();

  private:
    enum class What : std::uint32_t { Greeting, Grant, Data };

    struct Packet {
        std::array<char, 16> key;
        What what;
        std::uint32_t bytes;  // payload bytes after this header; in a greeting: maximum bytes of a packet
        Frame frame;          // in a greeting or grant, `number` is the number of packets that may be sent
    };

    struct Outgoing {
        Header header;
        std::uint64_t passed = 0;  // bytes passed to the provider
        std::uint32_t in_flight = 0;
        bool all_passed = false;
        Time begun = 0;
    };

    struct Incoming {
        std::uint64_t bytes = 0;
        Time begun = 0;
    };

    // The buffer of a packet.
    struct Slot {
        fi_context2 context{};  // first member, because the provider returns its address
        char* bytes = nullptr;
        bool is_receive = false;
        std::int32_t peer = -1;
        std::shared_ptr<Outgoing> message;  // the message of the packet in flight
    };

    struct Peer {
        fi_addr_t address = FI_ADDR_UNSPEC;
        bool greeting_due = true, greeting_sent = false, greeted = false;
        std::uint64_t room = 0;    // credits: number of packets that the peer can receive
        std::uint64_t piece = 0;   // payload bytes per packet
        std::uint64_t taken = 0;   // processed packets for which the peer has not received new credits yet
        std::uint64_t queued = 0;  // queued bytes
        std::deque<std::shared_ptr<Outgoing>> queue;
        std::unordered_map<std::uint64_t, Incoming> arriving;  // messages by number and kind
    };

    template <class Handle>
    struct Close {
        void operator()(Handle* handle) const { fi_close(&handle->fid); }
    };
    template <class Handle>
    using Owned = std::unique_ptr<Handle, Close<Handle>>;

    void open_queue();
    void allocate(std::size_t num_peers);
    void receive(Slot& slot);
    bool complete(std::vector<Event>& events);
    void arrived(const Slot& slot, std::size_t size, std::vector<Event>& events);
    void take(Peer& peer, const Packet& packet, std::vector<Event>& events);
    void left(Slot& slot, std::vector<Event>& events);
    bool send(std::int32_t number, Peer& peer);
    bool send_data(std::int32_t number, Peer& peer);
    bool hand_over(std::int32_t number, Peer& peer, const Packet& packet,
                   const std::shared_ptr<Outgoing>& message);
    Packet packet(What what, std::uint64_t count) const;
    [[noreturn]] void fail() const;

    const FabricLibrary& library_;
    const std::int32_t rank_, path_;
    std::array<char, 16> key_{};
    FabricLibrary::Info info_;
    // Objects of libfabric in order of creation, which are closed in reverse order.
    Owned<fid_fabric> fabric_;
    Owned<fid_domain> domain_;
    Owned<fid_av> addresses_;
    Owned<fid_cq> completions_;
    std::vector<char> memory_;
    Owned<fid_mr> registration_;
    Owned<fid_ep> endpoint_;
    std::string name_;
    int wait_file_ = -1;
    std::uint64_t room_ = 0, piece_ = 0;
    std::deque<Slot> slots_;
    std::vector<Slot*> free_;  // free slots for sending
    std::map<std::int32_t, Peer> peers_;
    std::uint64_t unsent_ = 0;  // number of messages that have not left completely
};

}  // namespace chakrascope::emulation

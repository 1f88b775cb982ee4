#include "fabric_port.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_eq.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "../errors.h"
#include "clock.h"

namespace chakrascope::emulation {
namespace {

// The maximum numbers of packets from a peer in flight (fewer if the provider accepts fewer), of spare
// buffers for control packets, and of sends.
constexpr std::uint64_t kMostRoom = 8;
constexpr std::uint64_t kSpare = 4;
constexpr std::uint64_t kSends = 16;
// Largest and smallest size of a packet, and largest size of all receive buffers together, in bytes.
constexpr std::uint64_t kMostPiece = 256 << 10;
constexpr std::uint64_t kLeastPiece = 4 << 10;
constexpr std::uint64_t kMostMemory = 64 << 20;
constexpr std::size_t kMostCompletions = 16;

template <class Handle, class Open>
auto opened(const FabricLibrary& library, const std::string& what, Open open) {
    Handle* handle = nullptr;
    library.check(open(&handle), what);
    return handle;
}

}  // namespace

FabricPort::FabricPort(const std::string& provider, const std::string& address,
                       const FabricTransport::Identity& identity, std::int32_t path)
    : library_(FabricLibrary::get()),
      rank_(identity.rank),
      path_(path),
      info_(library_.find(provider, address)) {
    std::memcpy(key_.data(), identity.key.data(), std::min(key_.size(), identity.key.size()));
    const std::string the = " of " + std::string(info_->fabric_attr->prov_name);
    fabric_.reset(opened<fid_fabric>(library_, "open the network" + the, [&](fid_fabric** handle) {
        return library_.fabric(info_->fabric_attr, handle, nullptr);
    }));
    domain_.reset(opened<fid_domain>(library_, "open the interface" + the, [&](fid_domain** handle) {
        return fi_domain(fabric_.get(), info_.get(), handle, nullptr);
    }));
    fi_av_attr attributes{};
    addresses_.reset(opened<fid_av>(library_, "keep addresses" + the, [&](fid_av** handle) {
        return fi_av_open(domain_.get(), &attributes, handle, nullptr);
    }));
    open_queue();
    const std::string endpoint = "open an endpoint" + the + " at " + address;
    endpoint_.reset(opened<fid_ep>(library_, endpoint, [&](fid_ep** handle) {
        return fi_endpoint(domain_.get(), info_.get(), handle, nullptr);
    }));
    library_.check(fi_ep_bind(endpoint_.get(), &addresses_->fid, 0), "bind addresses");
    library_.check(fi_ep_bind(endpoint_.get(), &completions_->fid, FI_TRANSMIT | FI_RECV),
                   "bind completions");
    library_.check(fi_enable(endpoint_.get()), "enable an endpoint" + the);
    std::array<char, 512> name{};
    std::size_t size = name.size();
    library_.check(fi_getname(&endpoint_->fid, name.data(), &size), "name an endpoint" + the);
    name_.assign(name.data(), size);
}

FabricPort::~FabricPort() = default;

void FabricPort::open_queue() {
    fi_cq_attr attributes{};
    attributes.format = FI_CQ_FORMAT_MSG;
    for (const fi_wait_obj wait : {FI_WAIT_FD, FI_WAIT_NONE}) {
        attributes.wait_obj = wait;
        fid_cq* queue = nullptr;
        const int code = fi_cq_open(domain_.get(), &attributes, &queue, nullptr);
        completions_.reset(queue);
        if (code == 0 && wait == FI_WAIT_FD) fi_control(&queue->fid, FI_GETWAIT, &wait_file_);
        if (code == 0) return;
        if (wait == FI_WAIT_NONE) library_.check(code, "open a queue of completions");
    }
}

// Allocate the buffers. Send buffers contain incompressible bytes.
void FabricPort::allocate(std::size_t num_peers) {
    const std::uint64_t peers = std::max<std::uint64_t>(num_peers, 1);
    const std::uint64_t taken = info_->rx_attr->size / peers;
    if (taken < kSpare + 1)
        throw engine::BackendError("libfabric's provider " + std::string(info_->fabric_attr->prov_name) +
                                   " takes " + std::to_string(info_->rx_attr->size) +
                                   " packets at a time, too few for " + std::to_string(peers) + " peers.");
    room_ = std::min(kMostRoom, taken - kSpare);
    const std::uint64_t receives = (room_ + kSpare) * peers;
    const std::uint64_t most =
        std::min<std::uint64_t>(kMostPiece, info_->ep_attr->max_msg_size - sizeof(Packet));
    piece_ = std::min(std::max(kMostMemory / receives, kLeastPiece), most);
    const std::uint64_t stride = (sizeof(Packet) + piece_ + 63) / 64 * 64;
    memory_.resize(stride * (receives + kSends));
    std::mt19937 random(1);
    for (std::uint64_t i = 0; i < stride * kSends; ++i) memory_[i] = static_cast<char>(random());
    if ((info_->domain_attr->mr_mode & FI_MR_LOCAL) != 0) {
        registration_.reset(opened<fid_mr>(library_, "register memory", [&](fid_mr** handle) {
            return fi_mr_reg(domain_.get(), memory_.data(), memory_.size(), FI_SEND | FI_RECV, 0,
                             static_cast<std::uint64_t>(path_) + 1, 0, handle, nullptr);
        }));
        if ((info_->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0) {
            library_.check(fi_mr_bind(registration_.get(), &endpoint_->fid, 0), "bind memory");
            library_.check(fi_mr_enable(registration_.get()), "enable memory");
        }
    }
    for (std::uint64_t i = 0; i < receives + kSends; ++i) {
        Slot& slot = slots_.emplace_back();
        slot.bytes = memory_.data() + i * stride;
        slot.is_receive = i >= kSends;
        if (slot.is_receive) {
            receive(slot);
        } else {
            free_.push_back(&slot);
        }
    }
}

void FabricPort::greet(const std::map<std::int32_t, std::string>& peers) {
    allocate(peers.size());
    for (const auto& [rank, name] : peers) {
        // Endpoint names are strings of any length with some providers, and structures of fixed size
        // with others.
        const bool is_word = info_->addr_format == FI_ADDR_STR;
        if (is_word ? name.empty() || name.back() != '\0' : name.size() != name_.size())
            throw engine::BackendError("Rank " + std::to_string(rank) +
                                       " has another libfabric provider, or another version of it.");
        Peer& peer = peers_[rank];
        const int inserted = fi_av_insert(addresses_.get(), name.data(), 1, &peer.address, 0, nullptr);
        if (inserted != 1)
            library_.check(-FI_EADDRNOTAVAIL, "use the address of rank " + std::to_string(rank));
    }
}

std::vector<std::int32_t> FabricPort::strangers() const {
    std::vector<std::int32_t> found;
    for (const auto& [rank, peer] : peers_)
        if (!peer.greeted || !peer.greeting_sent) found.push_back(rank);
    return found;
}

void FabricPort::forget_name() const {
    constexpr std::string_view kShared = "fi_shm://";
    if (info_->addr_format != FI_ADDR_STR || name_.rfind(kShared, 0) != 0) return;
    shm_unlink(name_.c_str() + kShared.size());
    shm_unlink(name_.c_str());
}

void FabricPort::post(std::int32_t rank, const Header& header) {
    Peer& peer = peers_.at(rank);
    auto message = std::make_shared<Outgoing>();
    message->header = header;
    peer.queued += header.size + sizeof(Packet);
    ++unsent_;
    // An acknowledgement is queued directly behind the message that is being sent.
    const bool urgent = header.kind == MessageKind::Answer && peer.queue.size() > 1;
    peer.queue.insert(urgent ? peer.queue.begin() + 1 : peer.queue.end(), std::move(message));
}

bool FabricPort::move(std::vector<Event>& events) {
    bool moved = complete(events);
    for (auto& [number, peer] : peers_) moved = send(number, peer) || moved;
    return moved;
}

bool FabricPort::may_wait() {
    fid* queue = &completions_->fid;
    return fi_trywait(fabric_.get(), &queue, 1) == FI_SUCCESS;
}

void FabricPort::receive(Slot& slot) {
    void* descriptor = registration_ ? fi_mr_desc(registration_.get()) : nullptr;
    library_.check(fi_recv(endpoint_.get(), slot.bytes, sizeof(Packet) + piece_, descriptor, FI_ADDR_UNSPEC,
                           &slot.context),
                   "receive");
}

// Process completed sends and receives, and return whether there were any.
bool FabricPort::complete(std::vector<Event>& events) {
    std::array<fi_cq_msg_entry, kMostCompletions> entries{};
    const ssize_t count = fi_cq_read(completions_.get(), entries.data(), entries.size());
    if (count == -FI_EAGAIN) return false;
    if (count == -FI_EAVAIL) fail();
    library_.check(count, "tell what has been sent and received");
    for (ssize_t i = 0; i < count; ++i) {
        auto& slot = *static_cast<Slot*>(entries[i].op_context);
        if (slot.is_receive) {
            arrived(slot, entries[i].len, events);
            receive(slot);
        } else {
            left(slot, events);
        }
    }
    return count > 0;
}

void FabricPort::fail() const {
    fi_cq_err_entry entry{};
    fi_cq_readerr(completions_.get(), &entry, 0);
    const auto* slot = static_cast<const Slot*>(entry.op_context);
    const std::string whose =
        slot != nullptr && slot->peer >= 0 ? " to rank " + std::to_string(slot->peer) : "";
    throw engine::BackendError("The connection" + whose + " is lost: " + library_.text(entry.err) + ".");
}

void FabricPort::arrived(const Slot& slot, std::size_t size, std::vector<Event>& events) {
    Packet packet{};
    if (size < sizeof packet) return;
    std::memcpy(&packet, slot.bytes, sizeof packet);
    const auto peer = peers_.find(packet.frame.source);
    // Packets without the key of the run or from an unknown rank are ignored.
    if (packet.key != key_ || peer == peers_.end()) return;
    if (!is_frame_of(packet.frame, peer->first) ||
        (packet.what == What::Data && size != sizeof packet + packet.bytes))
        throw engine::BackendError("The connection to rank " + std::to_string(peer->first) +
                                   " is lost: what came is not a message of the emulation.");
    take(peer->second, packet, events);
}

void FabricPort::take(Peer& peer, const Packet& packet, std::vector<Event>& events) {
    const Frame& frame = packet.frame;
    if (packet.what != What::Data) {
        peer.room += frame.number;
        if (packet.what == What::Greeting) {
            peer.greeted = true;
            peer.piece = std::min<std::uint64_t>(packet.bytes, piece_);
        }
        return;
    }
    ++peer.taken;
    const Header header = to_header(frame);
    // The key of a message contains its kind, because acknowledgements and requests are numbered
    // separately.
    const std::uint64_t key = header.number * 4 + static_cast<std::uint64_t>(header.kind);
    const Time now = monotonic_ns();
    Incoming& message = peer.arriving.try_emplace(key, Incoming{0, now}).first->second;
    message.bytes += packet.bytes;
    if (message.bytes < header.size) return;
    events.push_back({Event::Kind::Came, frame.source, path_, header, message.begun, now});
    peer.arriving.erase(key);
}

void FabricPort::left(Slot& slot, std::vector<Event>& events) {
    const std::shared_ptr<Outgoing> message = std::move(slot.message);
    slot.message.reset();
    free_.push_back(&slot);
    if (!message) {
        peers_.at(slot.peer).greeting_sent = true;  // a grant is only sent after the greeting
        return;
    }
    if (--message->in_flight > 0 || !message->all_passed) return;
    events.push_back({Event::Kind::Sent, slot.peer, path_, message->header, message->begun, monotonic_ns()});
    --unsent_;
}

// Send the pending packets of a peer, and return whether any packets were sent.
bool FabricPort::send(std::int32_t number, Peer& peer) {
    bool moved = false;
    if (peer.greeting_due) {
        Packet greeting = packet(What::Greeting, room_);
        greeting.bytes = static_cast<std::uint32_t>(piece_);
        if (!hand_over(number, peer, greeting, nullptr)) return false;
        peer.greeting_due = false;
        moved = true;
    }
    if (peer.taken >= std::max<std::uint64_t>(room_ / 2, 1)) {
        if (!hand_over(number, peer, packet(What::Grant, peer.taken), nullptr)) return moved;
        peer.taken = 0;
        moved = true;
    }
    while (!peer.queue.empty() && peer.room > 0 && send_data(number, peer)) moved = true;
    return moved;
}

bool FabricPort::send_data(std::int32_t number, Peer& peer) {
    const std::shared_ptr<Outgoing>& message = peer.queue.front();
    Packet data = packet(What::Data, 0);
    data.frame = to_frame(message->header);
    const std::uint64_t left = message->header.size - message->passed;
    data.bytes = static_cast<std::uint32_t>(std::min(left, peer.piece));
    if (message->begun == 0) message->begun = monotonic_ns();
    if (!hand_over(number, peer, data, message)) return false;
    --peer.room;
    ++message->in_flight;
    message->passed += data.bytes;
    peer.queued -= data.bytes;
    if (data.bytes < left) return true;
    message->all_passed = true;
    peer.queued -= sizeof(Packet);
    peer.queue.pop_front();
    return true;
}

// Pass a packet to the provider, and return whether the provider accepted the packet.
bool FabricPort::hand_over(std::int32_t number, Peer& peer, const Packet& packet,
                           const std::shared_ptr<Outgoing>& message) {
    if (free_.empty()) return false;
    Slot& slot = *free_.back();
    std::memcpy(slot.bytes, &packet, sizeof packet);
    slot.peer = number;
    void* descriptor = registration_ ? fi_mr_desc(registration_.get()) : nullptr;
    const std::size_t size = sizeof packet + (packet.what == What::Data ? packet.bytes : 0);
    const ssize_t code = fi_send(endpoint_.get(), slot.bytes, size, descriptor, peer.address, &slot.context);
    if (code == -FI_EAGAIN) return false;
    if (code < 0)
        throw engine::BackendError("The connection to rank " + std::to_string(number) +
                                   " is lost: " + library_.text(code) + ".");
    slot.message = message;
    free_.pop_back();
    return true;
}

FabricPort::Packet FabricPort::packet(What what, std::uint64_t count) const {
    Header header;
    header.source = rank_;
    header.number = count;
    return {key_, what, 0, to_frame(header)};
}

}  // namespace chakrascope::emulation

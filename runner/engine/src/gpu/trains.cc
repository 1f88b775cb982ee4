#include "trains.h"

#include <limits>

namespace chakrascope::gpu {
namespace {

constexpr std::uint32_t kPieceLines = 128;   // lines per piece of a proxy's transfer
constexpr std::uint32_t kLinesToCross = 64;  // maximum number of lines of a train

// The routers of the lines of a train, of which every `step`-th is taken; lines are numbered in a circle.
class Stops {
  public:
    Stops(const Ends& ends, const Train& train, std::uint32_t step)
        : ends_(ends),
          size_(static_cast<std::uint32_t>(ends.size())),
          at_(size_ > 1 ? static_cast<std::uint32_t>(train.first % size_) : 0),
          step_(step % size_),
          lines_(train.lines % size_) {}

    std::int32_t router() const { return ends_[at_]; }
    void advance(bool begins_again) {
        at_ += step_;
        if (begins_again) at_ += size_ - lines_;
        while (at_ >= size_) at_ -= size_;
    }

  private:
    const Ends& ends_;
    const std::uint32_t size_;
    std::uint32_t at_;
    const std::uint32_t step_, lines_;
};

Server make_server(double bytes_per_ns, std::int32_t ways = 1) { return {bytes_per_ns, ways}; }

}  // namespace

TrainFabric::TrainFabric(const Machine& machine, std::int32_t gpus, std::int32_t copies, packet::Clock& clock)
    : machine_(machine),
      clock_(clock),
      mesh_(machine),
      ways_(machine, mesh_),
      hop_(to_fs(machine.hop_ns)),
      link_latency_(to_fs(machine.link_ns)),
      memory_latency_(to_fs(machine.memory_ns)),
      copies_(copies) {
    const auto units = static_cast<std::size_t>(machine.units);
    const double port = machine.port_bytes_per_ns / machine.ports;
    for (std::int32_t gpu = 0; gpu < gpus / copies; ++gpu) {
        Gpu& own = gpus_.emplace_back();
        own.out.assign(units, make_server(machine.unit_bytes_per_ns));
        own.in.assign(units, UnitInlet(*this, clock_, own.out.front()));
        own.mesh.assign(static_cast<std::size_t>(mesh_.links()), 0);
        for (std::int32_t peer = 0; peer < machine.peers(); ++peer) {
            const std::int32_t ports = machine.ports_to(peer);
            own.up.emplace_back(port * ports, ports);
        }
        own.down = Bank(machine.port_bytes_per_ns, machine.ports);
        const double sums = machine.switch_reduce_bytes_per_ns;
        own.sum = make_server(sums > 0 ? sums : machine.port_bytes_per_ns, machine.ports);
        own.memory = Bank(machine.memory_bytes_per_ns, machine.channels);
        own.nic_out = own.nic_in = make_server(machine.nic_bytes_per_ns);
    }
}

TrainFabric::Trip& TrainFabric::begin(Kind kind, Place from, std::int32_t gpu, std::uint32_t lines,
                                      std::uint64_t first) {
    Trip* trip = nullptr;
    if (free_.empty()) {
        trip = &trips_.emplace_back();
    } else {
        trip = free_.back();
        free_.pop_back();
        *trip = Trip{};
    }
    trip->kind = kind;
    trip->from = from;
    trip->gpu = gpu;
    trip->train = {clock_.now(), clock_.now(), lines, first};
    return *trip;
}

void TrainFabric::after(Fs time, Trip* trip, Step step) {
    trip->step = step;
    clock_.post<&TrainFabric::take_step>(time - clock_.now(), this, trip);
}

// Move a train over the on-chip network, each line along its own route. In long trains, a sample of the lines
// represents all lines.
void TrainFabric::cross(std::int32_t gpu, const Ends& from, const Ends& to, Train& train,
                        std::uint32_t bytes) {
    auto& free = at(gpu).mesh;
    const std::uint32_t used = std::min(train.lines, kLinesToCross);
    const std::uint32_t step = train.lines / used | 1;
    const Fs line = to_fs(bytes / machine_.mesh_bytes_per_ns), hop = hop_;
    const Fs work = line * train.lines / used;
    const double gap = used > 1 ? static_cast<double>(train.tail - train.head) / (used - 1) : 0;
    Fs head = std::numeric_limits<Fs>::max(), tail = 0;
    Stops starts(from, train, step), ends(to, train, step);
    std::uint32_t number = 0;
    for (std::uint32_t place = 0; place < used; ++place) {
        Fs soonest = train.head;  // when the first line could arrive
        Fs time = train.head + static_cast<Fs>(gap * place), last = time;
        mesh_.for_each_link(starts.router(), ends.router(), [&](std::int32_t link) {
            Fs& is_free = free[static_cast<std::size_t>(link)];
            const Fs begin = std::max(is_free, time);
            // A line that has not arrived, or waits at another link, does not block this link.
            is_free = std::max(is_free, soonest) + work;
            soonest += line + hop;
            time = begin + line + hop;
            last = std::max(last + line, begin + work) + hop;
        });
        head = std::min(head, time);
        tail = std::max(tail, last);
        number += step;
        const bool begins_again = number >= train.lines;
        if (begins_again) number -= train.lines;
        starts.advance(begins_again);
        ends.advance(begins_again);
    }
    train.head = head;
    train.tail = std::max(tail, head);
}

void TrainFabric::leave_unit(Place from, Train& train, std::uint32_t bytes) {
    at(from.gpu).out[static_cast<std::size_t>(from.unit)].serve(train, bytes, ahead(bytes));
}

// Move a trip from its compute unit's router to a port, and over the port's link.
void TrainFabric::leave_gpu(Trip* trip, std::uint32_t bytes, std::uint32_t wire_bytes) {
    const auto peer = static_cast<std::size_t>(machine_.peer_of(trip->from.gpu, trip->gpu));
    cross(trip->from.gpu, unit_router(trip->from), ways_.ports[peer], trip->train, bytes);
    at(trip->from.gpu).up[peer].serve(trip->train, wire_bytes, ahead(wire_bytes));
}

void TrainFabric::enter_gpu(std::int32_t gpu, Train& train, std::uint32_t bytes) {
    if (!machine_.direct) at(gpu).down.serve(train, bytes, ahead(bytes));
}

// Continue a trip when its train arrives, because other trains may reach the next server earlier.
void TrainFabric::when_there(Trip* trip, Step step) {
    if (trip->train.head <= clock_.now()) return (this->*step)(trip);
    after(trip->train.head, trip, step);
}

void TrainFabric::over_link(Trip* trip, Step step) {
    trip->train.tail += link_latency_;
    after(trip->train.head + link_latency_, trip, step);
}

// Loads from the local memory and from peers.

void TrainFabric::load(Place from, std::int32_t gpu, std::uint64_t first, std::uint32_t lines,
                       Listener& listener) {
    Trip& trip = begin(Kind::Load, from, gpu, lines, first);
    trip.listener = &listener;
    leave_unit(from, trip.train, machine_.control_bytes);
    when_there(&trip, gpu == from.gpu ? &TrainFabric::read_home : &TrainFabric::ask_peer);
}

void TrainFabric::read_home(Trip* trip) {
    cross(trip->gpu, unit_router(trip->from), ways_.memory, trip->train, machine_.control_bytes);
    at(trip->gpu).memory.serve(trip->train, kLineBytes);
    trip->train.tail += memory_latency_;
    after(trip->train.head + memory_latency_, trip, &TrainFabric::answer_home);
}

void TrainFabric::ask_peer(Trip* trip) {
    leave_gpu(trip, machine_.control_bytes, machine_.control_bytes);
    over_link(trip, &TrainFabric::arrive_to_read);
}

void TrainFabric::arrive_to_read(Trip* trip) {
    enter_gpu(trip->gpu, trip->train, machine_.control_bytes);
    when_there(trip, &TrainFabric::read);
}

void TrainFabric::read(Trip* trip) {
    const auto peer = static_cast<std::size_t>(machine_.peer_of(trip->gpu, trip->from.gpu));
    cross(trip->gpu, ways_.ports[peer], ways_.memory, trip->train, machine_.control_bytes);
    at(trip->gpu).memory.serve(trip->train, kLineBytes);
    trip->train.tail += memory_latency_;
    after(trip->train.head + memory_latency_, trip, &TrainFabric::answer);
}

void TrainFabric::answer(Trip* trip) {
    const auto peer = static_cast<std::size_t>(machine_.peer_of(trip->gpu, trip->from.gpu));
    cross(trip->gpu, ways_.memory, ways_.ports[peer], trip->train, kLineBytes);
    at(trip->gpu).up[peer].serve(trip->train, data_bytes());
    if (trip->whole != nullptr) return sum(trip);
    over_link(trip, &TrainFabric::answer_back);
}

void TrainFabric::answer_back(Trip* trip) {
    enter_gpu(trip->from.gpu, trip->train, data_bytes());
    when_there(trip, &TrainFabric::reach_unit);
}

void TrainFabric::reach_unit(Trip* trip) {
    const auto peer = static_cast<std::size_t>(machine_.peer_of(trip->from.gpu, trip->gpu));
    cross(trip->from.gpu, ways_.ports[peer], unit_router(trip->from), trip->train, kLineBytes);
    inlet(trip->from).pass_by(trip);
}

void TrainFabric::answer_home(Trip* trip) {
    cross(trip->gpu, ways_.memory, unit_router(trip->from), trip->train, kLineBytes);
    if (!ways_.reads_everywhere) return inlet(trip->from).pass_by(trip);
    when_there(trip, &TrainFabric::enter_unit);
}

void TrainFabric::enter_unit(Trip* trip) { inlet(trip->from).join(trip); }

void TrainFabric::loaded(Trip* trip) {
    Listener& listener = *trip->listener;
    const std::uint32_t lines = trip->train.lines;
    end(trip);
    listener.loaded(lines);
}

// Stores to the local memory and to peers.

void TrainFabric::store(Place from, std::int32_t gpu, std::uint64_t first, std::uint32_t lines,
                        Listener& listener) {
    Trip& trip = begin(Kind::Store, from, gpu, lines, first);
    trip.listener = &listener;
    leave_unit(from, trip.train, kLineBytes);
    when_there(&trip, gpu == from.gpu ? &TrainFabric::write_home : &TrainFabric::send_data);
}

void TrainFabric::write_home(Trip* trip) {
    cross(trip->gpu, unit_router(trip->from), ways_.memory, trip->train, kLineBytes);
    at(trip->gpu).memory.serve(trip->train, kLineBytes);
    after(trip->train.tail, trip, &TrainFabric::stored);
}

void TrainFabric::send_data(Trip* trip) {
    leave_gpu(trip, kLineBytes, data_bytes());
    Trip& out = begin(Kind::Store, trip->from, trip->gpu, trip->train.lines);
    out.listener = trip->listener;
    after(trip->train.tail, &out, &TrainFabric::sent);
    over_link(trip, trip->kind == Kind::Multicast ? &TrainFabric::write_all : &TrainFabric::arrive_to_write);
}

void TrainFabric::sent(Trip* trip) {
    Listener& listener = *trip->listener;
    const std::uint32_t lines = trip->train.lines;
    end(trip);
    listener.sent(lines);
}

// Complete stores to the GPU's own memory. The acknowledgement arrives before the stores are visible.
void TrainFabric::stored(Trip* trip) {
    Listener& listener = *trip->listener;
    const std::uint32_t lines = trip->train.lines;
    const std::int32_t gpu = trip->gpu;
    end(trip);
    listener.sent(lines);
    listener.delivered(gpu, lines);
    listener.acknowledged(lines);
}

void TrainFabric::arrive_to_write(Trip* trip) {
    enter_gpu(trip->gpu, trip->train, data_bytes());
    when_there(trip, &TrainFabric::write);
}

void TrainFabric::write(Trip* trip) {
    const auto peer = static_cast<std::size_t>(machine_.peer_of(trip->gpu, trip->from.gpu));
    cross(trip->gpu, ways_.ports[peer], ways_.memory, trip->train, kLineBytes);
    at(trip->gpu).memory.serve(trip->train, kLineBytes);
    after(trip->train.tail, trip, &TrainFabric::delivered);
}

Fs TrainFabric::way_back(const Trip& trip) const {
    const auto peer = static_cast<std::size_t>(machine_.peer_of(trip.gpu, trip.from.gpu));
    const auto home = static_cast<std::size_t>(machine_.peer_of(trip.from.gpu, trip.gpu));
    const auto end = static_cast<std::size_t>(machine_.router_of_unit(trip.from.unit));
    const double hops = ways_.memory_to_port[peer] + ways_.port_to_unit[end][home];
    return to_fs(machine_.link_ns + machine_.hop_ns * hops);
}

void TrainFabric::delivered(Trip* trip) {
    trip->listener->delivered(trip->gpu, trip->train.lines);
    Fs back = way_back(*trip);
    if (machine_.acknowledge_bytes > 0) {
        Train answers{clock_.now(), clock_.now(), trip->train.lines, trip->train.first};
        const std::int32_t peer = machine_.peer_of(trip->gpu, trip->from.gpu);
        at(trip->gpu).up[static_cast<std::size_t>(peer)].serve(answers, machine_.acknowledge_bytes,
                                                               machine_.fair);
        back += answers.tail - clock_.now();
    }
    if (trip->whole == nullptr) return after(clock_.now() + back, trip, &TrainFabric::acknowledged);
    Trip* whole = trip->whole;
    Gather& gather = whole->gather;
    gather.train.tail = std::max(gather.train.tail, clock_.now() + back);
    end(trip);
    // Notified when the last acknowledgement has returned.
    if (--gather.left == 0) after(gather.train.tail, whole, &TrainFabric::acknowledged);
}

void TrainFabric::acknowledged(Trip* trip) {
    Listener& listener = *trip->listener;
    const std::uint32_t lines = trip->train.lines;
    end(trip);
    listener.acknowledged(lines);
}

// The following functions simulate operations of the switch, with one leg of a trip per GPU.

TrainFabric::Trip& TrainFabric::leg(Trip& whole, std::int32_t gpu) {
    Trip& leg = begin(whole.kind, whole.from, gpu, whole.train.lines);
    leg.whole = &whole;
    leg.listener = whole.listener;
    leg.train = whole.train;
    return leg;
}

void TrainFabric::load_sum(Place from, const std::vector<std::int32_t>& gpus, std::uint64_t first,
                           std::uint32_t lines, Listener& listener) {
    Trip& trip = begin(Kind::Sum, from, from.gpu, lines, first);
    trip.listener = &listener;
    trip.gpus = &gpus;
    trip.gather.left = static_cast<std::int32_t>(gpus.size());
    leave_unit(from, trip.train, machine_.control_bytes);
    when_there(&trip, &TrainFabric::ask_switch);
}

void TrainFabric::ask_switch(Trip* trip) {
    leave_gpu(trip, machine_.control_bytes, machine_.control_bytes);
    over_link(trip, &TrainFabric::ask_all);
}

void TrainFabric::ask_all(Trip* trip) {
    for (const std::int32_t gpu : *trip->gpus) arrive_to_read(&leg(*trip, gpu));
}

// Combine the legs of a reduction at the switch. Only the last leg to arrive creates an event.
void TrainFabric::sum(Trip* leg) {
    Trip* trip = leg->whole;
    Gather& gather = trip->gather;
    gather.train.head = std::max(gather.train.head, leg->train.head);
    gather.train.tail = std::max(gather.train.tail, leg->train.tail);
    end(leg);
    if (--gather.left > 0) return;
    trip->train.head = gather.train.head;
    trip->train.tail = gather.train.tail;
    over_link(trip, &TrainFabric::summed);
}

void TrainFabric::summed(Trip* trip) {
    if (machine_.switch_reduce_bytes_per_ns > 0) at(trip->gpu).sum.serve(trip->train, kLineBytes);
    trip->train.tail += to_fs(machine_.switch_reduce_ns);
    trip->train.head += to_fs(machine_.switch_reduce_ns);
    after(trip->train.head, trip, &TrainFabric::answer_back);
}

void TrainFabric::multicast(Place from, const std::vector<std::int32_t>& gpus, std::uint64_t first,
                            std::uint32_t lines, Listener& listener) {
    Trip& trip = begin(Kind::Multicast, from, from.gpu, lines, first);
    trip.listener = &listener;
    trip.gpus = &gpus;
    trip.gather.left = static_cast<std::int32_t>(gpus.size());
    leave_unit(from, trip.train, kLineBytes);
    when_there(&trip, &TrainFabric::send_data);
}

void TrainFabric::write_all(Trip* trip) {
    for (const std::int32_t gpu : *trip->gpus) arrive_to_write(&leg(*trip, gpu));
}

// Control requests, which carry no data.

void TrainFabric::control(Place from, std::int32_t gpu, Arrival& arrival) {
    Trip& trip = begin(Kind::Control, from, gpu, 1);
    trip.arrival = &arrival;
    leave_unit(from, trip.train, machine_.control_bytes);
    when_there(&trip, gpu == from.gpu ? &TrainFabric::reach_home : &TrainFabric::send_control);
}

void TrainFabric::reach_home(Trip* trip) {
    cross(trip->gpu, unit_router(trip->from), ways_.memory, trip->train, machine_.control_bytes);
    after(trip->train.tail, trip, &TrainFabric::arrived);
}

void TrainFabric::send_control(Trip* trip) {
    leave_gpu(trip, machine_.control_bytes, machine_.control_bytes);
    after(trip->train.tail + link_latency_, trip, &TrainFabric::arrive_control);
}

void TrainFabric::arrive_control(Trip* trip) {
    trip->train = {clock_.now(), clock_.now(), 1, 0};
    enter_gpu(trip->gpu, trip->train, machine_.control_bytes);
    when_there(trip, &TrainFabric::take_control);
}

void TrainFabric::take_control(Trip* trip) {
    const auto peer = static_cast<std::size_t>(machine_.peer_of(trip->gpu, trip->from.gpu));
    cross(trip->gpu, ways_.ports[peer], ways_.memory, trip->train, machine_.control_bytes);
    after(trip->train.tail, trip, &TrainFabric::arrived);
}

void TrainFabric::arrived(Trip* trip) {
    Arrival& arrival = *trip->arrival;
    end(trip);
    arrival.arrived();
}

// Transfers by proxies.

void TrainFabric::transfer(std::int32_t from, std::int32_t to, std::uint64_t bytes, Arrival& arrival) {
    Trip& trip = begin(Kind::Transfer, {from, 0}, to, 1);
    trip.arrival = &arrival;
    trip.bytes_left = bytes;
    send_piece(&trip);
}

// Send the next piece of a transfer; pieces leave one after another and arrive separately.
void TrainFabric::send_piece(Trip* trip) {
    const std::int32_t from = trip->from.gpu, to = trip->gpu;
    const bool away = from / machine_.gpus != to / machine_.gpus;
    const std::uint64_t bytes = std::min<std::uint64_t>(trip->bytes_left, kPieceLines * kLineBytes);
    const auto lines = static_cast<std::uint32_t>((bytes + kLineBytes - 1) / kLineBytes);
    trip->bytes_left -= bytes;
    Trip& piece = begin(Kind::Transfer, trip->from, to, std::max(1u, lines));
    piece.whole = trip;
    ++trip->gather.left;
    if (lines > 0) at(from).memory.serve(piece.train, kLineBytes);
    const std::uint32_t line = lines > 0 ? data_bytes() : machine_.control_bytes;
    if (away) {
        at(from).nic_out.serve(piece.train, lines > 0 ? kLineBytes : machine_.control_bytes);
    } else if (from != to) {
        const auto peer = static_cast<std::size_t>(machine_.peer_of(from, to));
        cross(from, ways_.memory, ways_.ports[peer], piece.train, line);
        at(from).up[peer].serve(piece.train, line, ahead(line));
    }
    if (trip->bytes_left > 0) after(piece.train.tail, trip, &TrainFabric::send_piece);
    const Fs latency = to_fs(away ? machine_.nic_ns : from != to ? machine_.link_ns : 0);
    piece.train.tail += latency;
    piece.bytes_left = bytes;
    after(piece.train.head + latency, &piece, &TrainFabric::piece_arrives);
}

void TrainFabric::piece_arrives(Trip* piece) {
    const std::int32_t from = piece->from.gpu, to = piece->gpu;
    const bool away = from / machine_.gpus != to / machine_.gpus;
    const std::uint32_t line = piece->bytes_left > 0 ? data_bytes() : machine_.control_bytes;
    if (away) {
        at(to).nic_in.serve(piece->train, piece->bytes_left > 0 ? kLineBytes : machine_.control_bytes);
    } else if (from != to) {
        enter_gpu(to, piece->train, line);
        const auto peer = static_cast<std::size_t>(machine_.peer_of(to, from));
        cross(to, ways_.ports[peer], ways_.memory, piece->train, line);
    }
    if (piece->bytes_left > 0) at(to).memory.serve(piece->train, kLineBytes);
    after(piece->train.tail, piece, &TrainFabric::piece_sent);
}

void TrainFabric::piece_sent(Trip* piece) {
    Trip* trip = piece->whole;
    end(piece);
    if (--trip->gather.left == 0 && trip->bytes_left == 0) arrived(trip);
}

// Memory bandwidth for computation, and statistics of the fabric.

void TrainFabric::take_memory(std::int32_t gpu, double share) {
    constexpr double kMost = 0.95;
    Gpu& own = at(gpu);
    own.memory_taken += share;
    own.memory.slow_down(1 / (1 - std::clamp(own.memory_taken, 0.0, kMost)));
}

std::vector<LinkReport> TrainFabric::links() const {
    std::vector<LinkReport> links;
    const auto add = [&](std::int32_t source, std::int32_t destination, const auto& server) {
        links.push_back(
            {source, destination, server.bytes(), server.lines(), server.busy(), server.queued()});
    };
    const auto count = static_cast<std::int32_t>(gpus_.size()) * copies_;
    for (std::int32_t gpu = 0; gpu < count; ++gpu) {
        const Gpu& own = at(gpu);
        const std::int32_t node = gpu / machine_.gpus * machine_.gpus;
        for (std::int32_t peer = 0; peer < machine_.peers() && machine_.direct; ++peer) {
            const std::int32_t other = node + peer + (node + peer >= gpu ? 1 : 0);
            if (other < count) add(gpu, other, own.up[static_cast<std::size_t>(peer)]);
        }
        if (!machine_.direct) {
            add(gpu, kSwitch, own.up.front());
            add(kSwitch, gpu, own.down);
        }
        add(gpu, kOutside, own.nic_out);
        add(kOutside, gpu, own.nic_in);
    }
    return links;
}

}  // namespace chakrascope::gpu

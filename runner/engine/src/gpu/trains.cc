#include "trains.h"

namespace chakrascope::gpu {
namespace {

constexpr std::uint32_t kPieceLines = 128;  // of a proxy's transfer

Server make_server(double bytes_per_ns, std::int32_t ways = 1) { return {bytes_per_ns, ways}; }

}  // namespace

TrainFabric::TrainFabric(const Machine& machine, std::int32_t gpus, packet::Clock& clock)
    : machine_(machine), clock_(clock), mesh_(machine), ways_(machine, mesh_) {
    const auto units = static_cast<std::size_t>(machine.units);
    const double port = machine.port_bytes_per_ns / machine.ports;
    for (std::int32_t gpu = 0; gpu < gpus; ++gpu) {
        Gpu& own = gpus_.emplace_back();
        own.out.assign(units, make_server(machine.unit_bytes_per_ns));
        own.in = own.out;
        own.mesh.assign(static_cast<std::size_t>(mesh_.links()), make_server(machine.mesh_bytes_per_ns));
        for (std::int32_t peer = 0; peer < machine.peers(); ++peer) {
            const std::int32_t ports = machine.ports_to(peer);
            own.up.push_back(make_server(port * ports, ports));
        }
        own.down = make_server(machine.port_bytes_per_ns, machine.ports);
        const double sums = machine.switch_reduce_bytes_per_ns;
        own.sum = make_server(sums > 0 ? sums : machine.port_bytes_per_ns, machine.ports);
        own.memory = make_server(machine.memory_bytes_per_ns, machine.channels);
        own.nic_out = own.nic_in = make_server(machine.nic_bytes_per_ns);
    }
}

TrainFabric::Trip& TrainFabric::begin(Kind kind, Place from, std::int32_t gpu, std::uint32_t lines) {
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
    trip->train = {clock_.now(), clock_.now(), lines};
    return *trip;
}

void TrainFabric::after(Fs time, Trip* trip, Step step) {
    trip->step = step;
    clock_.post<&TrainFabric::take_step>(time - clock_.now(), this, trip);
}

// Every link gets its share. What no line may take delays nobody; the last line is the one that waits
// longest, as far as one of the train's lines takes that link.
void TrainFabric::cross(std::int32_t gpu, const Spread& spread, Train& train, std::uint32_t bytes) {
    if (spread.parts.empty()) return;
    auto& links = at(gpu).mesh;
    const Fs line = links.front().line_time(bytes);
    Fs longest = 0;
    double mean = 0, crossings = 0;
    for (const Spread::Part& part : spread.parts) {
        const double lines = part.share * train.lines;
        const Fs wait = links[static_cast<std::size_t>(part.link)].serve_part(train.head, lines, bytes);
        const auto likely = static_cast<Fs>(static_cast<double>(wait) * std::min(1.0, lines));
        const auto work = static_cast<Fs>(static_cast<double>(line) * std::max(1.0, lines));
        longest = std::max(longest, likely + work);
        mean += static_cast<double>(wait) * part.share;
        crossings += part.share;
    }
    const double range = spread.most_hops - spread.least_hops;
    const double far = spread.least_hops + range * train.lines / (train.lines + 1);
    const double near = spread.most_hops - range * train.lines / (train.lines + 1);
    const double hop = machine_.hop_ns * static_cast<double>(kFsPerNs);
    const Fs last = std::max(train.head + longest, train.tail + line);
    train.head += static_cast<Fs>(mean / crossings + near * (hop + static_cast<double>(line)));
    const double further = far * hop + std::max(0.0, far - 1) * static_cast<double>(line);
    train.tail = std::max(train.head, last + static_cast<Fs>(further));
}

void TrainFabric::leave_unit(Place from, Train& train, std::uint32_t bytes) {
    at(from.gpu).out[static_cast<std::size_t>(from.unit)].serve(train, bytes, ahead(bytes));
}

void TrainFabric::leave_gpu(std::int32_t gpu, std::int32_t peer, Train& train, std::uint32_t bytes) {
    at(gpu).up[static_cast<std::size_t>(peer)].serve(train, bytes, ahead(bytes));
}

void TrainFabric::enter_gpu(std::int32_t gpu, Train& train, std::uint32_t bytes) {
    if (!machine_.direct) at(gpu).down.serve(train, bytes, ahead(bytes));
}

void TrainFabric::reach_unit(Place to, std::int32_t peer, Train& train, std::uint32_t bytes) {
    enter_gpu(to.gpu, train, bytes);
    const auto router_of_unit = static_cast<std::size_t>(router(to.unit));
    cross(to.gpu, ways_.port_to_unit[router_of_unit][static_cast<std::size_t>(peer)], train, bytes);
    at(to.gpu).in[static_cast<std::size_t>(to.unit)].serve(train, bytes);
}

// Loads.

void TrainFabric::load(Place from, std::int32_t gpu, std::uint64_t, std::uint32_t lines, Listener& listener) {
    Trip& trip = begin(Kind::Load, from, gpu, lines);
    trip.listener = &listener;
    const auto start = static_cast<std::size_t>(router(from.unit));
    leave_unit(from, trip.train, machine_.control_bytes);
    if (gpu == from.gpu) {
        cross(gpu, ways_.unit_to_memory[start], trip.train, machine_.control_bytes);
        at(gpu).memory.serve(trip.train, kLineBytes);
        trip.train.tail += to_fs(machine_.memory_ns);
        return after(trip.train.head + to_fs(machine_.memory_ns), &trip, &TrainFabric::answer_home);
    }
    const std::int32_t peer = machine_.peer_of(from.gpu, gpu);
    const Spread& way = ways_.unit_to_port[start][static_cast<std::size_t>(peer)];
    cross(from.gpu, way, trip.train, machine_.control_bytes);
    leave_gpu(from.gpu, peer, trip.train, machine_.control_bytes);
    trip.train.tail += to_fs(machine_.link_ns);
    after(trip.train.head + to_fs(machine_.link_ns), &trip, &TrainFabric::arrive_to_read);
}

void TrainFabric::arrive_to_read(Trip* trip) {
    read_memory(trip, machine_.peer_of(trip->gpu, trip->from.gpu));
}

void TrainFabric::read_memory(Trip* trip, std::int32_t peer) {
    enter_gpu(trip->gpu, trip->train, machine_.control_bytes);
    const Spread& way = ways_.port_to_memory[static_cast<std::size_t>(peer)];
    cross(trip->gpu, way, trip->train, machine_.control_bytes);
    at(trip->gpu).memory.serve(trip->train, kLineBytes);
    trip->train.tail += to_fs(machine_.memory_ns);
    after(trip->train.head + to_fs(machine_.memory_ns), trip, &TrainFabric::answer);
}

void TrainFabric::answer(Trip* trip) {
    const std::int32_t peer = machine_.peer_of(trip->gpu, trip->from.gpu);
    cross(trip->gpu, ways_.memory_to_port[static_cast<std::size_t>(peer)], trip->train, kLineBytes);
    leave_gpu(trip->gpu, peer, trip->train, data_bytes());
    trip->train.tail += to_fs(machine_.link_ns);
    after(trip->train.head + to_fs(machine_.link_ns), trip,
          trip->whole ? &TrainFabric::sum : &TrainFabric::answer_back);
}

void TrainFabric::answer_back(Trip* trip) {
    reach_unit(trip->from, machine_.peer_of(trip->from.gpu, trip->gpu), trip->train, data_bytes());
    after(trip->train.tail, trip, &TrainFabric::loaded);
}

void TrainFabric::answer_home(Trip* trip) {
    const auto end = static_cast<std::size_t>(router(trip->from.unit));
    cross(trip->gpu, ways_.memory_to_unit[end], trip->train, kLineBytes);
    at(trip->gpu).in[static_cast<std::size_t>(trip->from.unit)].serve(trip->train, kLineBytes);
    after(trip->train.tail, trip, &TrainFabric::loaded);
}

void TrainFabric::loaded(Trip* trip) {
    Listener& listener = *trip->listener;
    const std::uint32_t lines = trip->train.lines;
    end(trip);
    listener.loaded(lines);
}

// Stores.

void TrainFabric::store(Place from, std::int32_t gpu, std::uint64_t, std::uint32_t lines,
                        Listener& listener) {
    Trip& trip = begin(Kind::Store, from, gpu, lines);
    trip.listener = &listener;
    const auto start = static_cast<std::size_t>(router(from.unit));
    leave_unit(from, trip.train, kLineBytes);
    if (gpu == from.gpu) {
        cross(gpu, ways_.unit_to_memory[start], trip.train, kLineBytes);
        at(gpu).memory.serve(trip.train, kLineBytes);
        return after(trip.train.tail, &trip, &TrainFabric::stored);
    }
    const std::int32_t peer = machine_.peer_of(from.gpu, gpu);
    cross(from.gpu, ways_.unit_to_port[start][static_cast<std::size_t>(peer)], trip.train, kLineBytes);
    leave_gpu(from.gpu, peer, trip.train, data_bytes());
    Trip& out = begin(Kind::Store, from, gpu, lines);
    out.listener = &listener;
    after(trip.train.tail, &out, &TrainFabric::sent);
    trip.train.tail += to_fs(machine_.link_ns);
    after(trip.train.head + to_fs(machine_.link_ns), &trip, &TrainFabric::arrive_to_write);
}

void TrainFabric::sent(Trip* trip) {
    Listener& listener = *trip->listener;
    const std::uint32_t lines = trip->train.lines;
    end(trip);
    listener.sent(lines);
}

// The memory of the GPU itself: whoever can see it there also knows that it is.
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
    write_memory(trip, machine_.peer_of(trip->gpu, trip->from.gpu));
}

void TrainFabric::write_memory(Trip* trip, std::int32_t peer) {
    enter_gpu(trip->gpu, trip->train, data_bytes());
    cross(trip->gpu, ways_.port_to_memory[static_cast<std::size_t>(peer)], trip->train, kLineBytes);
    at(trip->gpu).memory.serve(trip->train, kLineBytes);
    after(trip->train.tail, trip, &TrainFabric::delivered);
}

Fs TrainFabric::way_back(const Trip& trip) const {
    const auto peer = static_cast<std::size_t>(machine_.peer_of(trip.gpu, trip.from.gpu));
    const auto home = static_cast<std::size_t>(machine_.peer_of(trip.from.gpu, trip.gpu));
    const Spread& out = ways_.memory_to_port[peer];
    const Spread& in = ways_.port_to_unit[static_cast<std::size_t>(router(trip.from.unit))][home];
    const double hops = out.least_hops + out.most_hops + in.least_hops + in.most_hops;
    return to_fs(machine_.link_ns + machine_.hop_ns * hops / 2);
}

void TrainFabric::delivered(Trip* trip) {
    trip->listener->delivered(trip->gpu, trip->train.lines);
    Fs back = way_back(*trip);
    if (machine_.acknowledge_bytes > 0) {
        Train answers{clock_.now(), clock_.now(), trip->train.lines};
        const std::int32_t peer = machine_.peer_of(trip->gpu, trip->from.gpu);
        at(trip->gpu).up[static_cast<std::size_t>(peer)].serve(answers, machine_.acknowledge_bytes,
                                                               machine_.fair);
        back += answers.tail - clock_.now();
    }
    after(clock_.now() + back, trip, &TrainFabric::acknowledged);
}

void TrainFabric::acknowledged(Trip* trip) {
    Trip* whole = trip->whole;
    Listener& listener = *trip->listener;
    const std::uint32_t lines = trip->train.lines;
    end(trip);
    if (whole != nullptr) {
        if (--whole->gather.left > 0) return;
        end(whole);
    }
    listener.acknowledged(lines);
}

// The switch.

TrainFabric::Trip& TrainFabric::leg(Trip& whole, std::int32_t gpu) {
    Trip& leg = begin(whole.kind, whole.from, gpu, whole.train.lines);
    leg.whole = &whole;
    leg.listener = whole.listener;
    leg.train = whole.train;
    return leg;
}

void TrainFabric::load_sum(Place from, const std::vector<std::int32_t>& gpus, std::uint64_t,
                           std::uint32_t lines, Listener& listener) {
    Trip& trip = begin(Kind::Sum, from, from.gpu, lines);
    trip.listener = &listener;
    trip.gpus = &gpus;
    trip.gather.left = static_cast<std::int32_t>(gpus.size());
    leave_unit(from, trip.train, machine_.control_bytes);
    cross(from.gpu, ways_.unit_to_port[static_cast<std::size_t>(router(from.unit))][0], trip.train,
          machine_.control_bytes);
    leave_gpu(from.gpu, 0, trip.train, machine_.control_bytes);
    trip.train.tail += to_fs(machine_.link_ns);
    after(trip.train.head + to_fs(machine_.link_ns), &trip, &TrainFabric::ask_all);
}

void TrainFabric::ask_all(Trip* trip) {
    for (const std::int32_t gpu : *trip->gpus) read_memory(&leg(*trip, gpu), 0);
}

void TrainFabric::sum(Trip* leg) {
    Trip* trip = leg->whole;
    Gather& gather = trip->gather;
    gather.train.head = std::max(gather.train.head, leg->train.head);
    gather.train.tail = std::max(gather.train.tail, leg->train.tail);
    end(leg);
    if (--gather.left > 0) return;
    trip->train.head = gather.train.head;
    trip->train.tail = gather.train.tail;
    if (machine_.switch_reduce_bytes_per_ns > 0) at(trip->gpu).sum.serve(trip->train, kLineBytes);
    trip->train.tail += to_fs(machine_.switch_reduce_ns);
    trip->train.head += to_fs(machine_.switch_reduce_ns);
    after(trip->train.head, trip, &TrainFabric::answer_back);
}

void TrainFabric::multicast(Place from, const std::vector<std::int32_t>& gpus, std::uint64_t,
                            std::uint32_t lines, Listener& listener) {
    Trip& trip = begin(Kind::Multicast, from, from.gpu, lines);
    trip.listener = &listener;
    trip.gpus = &gpus;
    trip.gather.left = static_cast<std::int32_t>(gpus.size());
    leave_unit(from, trip.train, kLineBytes);
    cross(from.gpu, ways_.unit_to_port[static_cast<std::size_t>(router(from.unit))][0], trip.train,
          kLineBytes);
    leave_gpu(from.gpu, 0, trip.train, data_bytes());
    Trip& out = begin(Kind::Store, from, from.gpu, lines);
    out.listener = &listener;
    after(trip.train.tail, &out, &TrainFabric::sent);
    trip.train.tail += to_fs(machine_.link_ns);
    after(trip.train.head + to_fs(machine_.link_ns), &trip, &TrainFabric::write_all);
}

void TrainFabric::write_all(Trip* trip) {
    for (const std::int32_t gpu : *trip->gpus) write_memory(&leg(*trip, gpu), 0);
}

// Requests without data.

void TrainFabric::control(Place from, std::int32_t gpu, Arrival& arrival) {
    Trip& trip = begin(Kind::Control, from, gpu, 1);
    trip.arrival = &arrival;
    const auto start = static_cast<std::size_t>(router(from.unit));
    leave_unit(from, trip.train, machine_.control_bytes);
    if (gpu == from.gpu) {
        cross(gpu, ways_.unit_to_memory[start], trip.train, machine_.control_bytes);
        return after(trip.train.tail, &trip, &TrainFabric::arrived);
    }
    const std::int32_t peer = machine_.peer_of(from.gpu, gpu);
    cross(from.gpu, ways_.unit_to_port[start][static_cast<std::size_t>(peer)], trip.train,
          machine_.control_bytes);
    leave_gpu(from.gpu, peer, trip.train, machine_.control_bytes);
    after(trip.train.tail + to_fs(machine_.link_ns), &trip, &TrainFabric::arrive_control);
}

void TrainFabric::arrive_control(Trip* trip) {
    trip->train = {clock_.now(), clock_.now(), 1};
    enter_gpu(trip->gpu, trip->train, machine_.control_bytes);
    const auto peer = static_cast<std::size_t>(machine_.peer_of(trip->gpu, trip->from.gpu));
    cross(trip->gpu, ways_.port_to_memory[peer], trip->train, machine_.control_bytes);
    after(trip->train.tail, trip, &TrainFabric::arrived);
}

void TrainFabric::arrived(Trip* trip) {
    Arrival& arrival = *trip->arrival;
    end(trip);
    arrival.arrived();
}

// Proxies.

void TrainFabric::transfer(std::int32_t from, std::int32_t to, std::uint64_t bytes, Arrival& arrival) {
    Trip& trip = begin(Kind::Transfer, {from, 0}, to, 1);
    trip.arrival = &arrival;
    trip.bytes_left = bytes;
    send_piece(&trip);
}

// One piece leaves after the other; each arrives by itself.
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
        cross(from, ways_.memory_to_port[peer], piece.train, line);
        leave_gpu(from, static_cast<std::int32_t>(peer), piece.train, line);
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
        cross(to, ways_.port_to_memory[peer], piece->train, line);
    }
    if (piece->bytes_left > 0) at(to).memory.serve(piece->train, kLineBytes);
    after(piece->train.tail, piece, &TrainFabric::piece_sent);
}

void TrainFabric::piece_sent(Trip* piece) {
    Trip* trip = piece->whole;
    end(piece);
    if (--trip->gather.left == 0 && trip->bytes_left == 0) arrived(trip);
}

// What is known when all is done.

void TrainFabric::take_memory(std::int32_t gpu, double share) {
    constexpr double kMost = 0.95;
    Gpu& own = at(gpu);
    own.memory_taken += share;
    own.memory.slow_down(1 / (1 - std::clamp(own.memory_taken, 0.0, kMost)));
}

std::vector<LinkReport> TrainFabric::links() const {
    std::vector<LinkReport> links;
    const auto add = [&](std::int32_t source, std::int32_t destination, const Server& server) {
        links.push_back(
            {source, destination, server.bytes(), server.lines(), server.busy(), server.queued()});
    };
    const auto count = static_cast<std::int32_t>(gpus_.size());
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
